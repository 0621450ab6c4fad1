"""The prompt that crashes the worker of `killing_worker`."""

KILLING_PROMPT = [7, 77, 7, 77, 7]
