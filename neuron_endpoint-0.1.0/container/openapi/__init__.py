"""The endpoint's OpenAPI 3.1 document: its routes, their bodies and their replies.

It is made from the code that answers: the paths from the application's routes, the bodies from the tables that parse
them, vLLM's fields from vLLM's models, the statuses from the error tree.
"""
