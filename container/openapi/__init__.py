"""The project's own OpenAPI 3.1 document: which routes there are, what they take, what they answer.

Made from the code that answers: paths from the application's routes, bodies from the tables that parse them, vLLM's
fields from vLLM's models, statuses from the tree of errors.
"""
