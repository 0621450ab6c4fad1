"""The bodies that clients send and the replies they expect: OpenAI chat and completions, and TGI/LMI `inputs`.

Which schema a body of /invocations is, is decided once, by one key: `messages` -> chat, `prompt` -> completion,
`inputs` -> TGI/LMI. Each schema is a pure translator: a JSON object in, a `Call` out; tokens in, bytes out.
"""
