"""The endpoint owner's own code around the engine: `code/inference.py` with the hooks of `sagemaker-inference`, or
LMI's `model.py` with `handle(inputs)`. docs/custom-code.md says what it may do.

It runs in the serving process with its rights, because it comes with the owner's model. Code of a hub id is never run,
and ENDPOINT_CUSTOM_CODE=false runs none.
"""
