"""Custom code of a model: `code/inference.py` with hooks of `sagemaker-inference`, or `model.py` of LMI.

docs/custom-code.md describes what it may do. It runs in the serving process with that process's rights, because it
comes with the owner's model. Code of a hub id is never run, and ENDPOINT_CUSTOM_CODE=false turns custom code off.
"""
