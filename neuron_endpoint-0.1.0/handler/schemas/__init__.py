"""Parses request bodies and writes replies in the schemas of OpenAI, TGI and LMI.

One key of a body decides its schema at /invocations: `messages` is a chat, `prompt` a completion, `inputs` TGI or LMI.
Each schema is a pure translator: from a JSON object to a `Call`, and from tokens to bytes.
"""
