"""What the clients ask, and where."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest

from sample_model.facts import by_name

ROOT = Path(__file__).parents[2]
# Of the endpoint's venv.
BIN = Path(os.environ.get("ENDPOINT_BIN", ROOT / ".venv" / "bin")).absolute()

ENDPOINT = "my-endpoint"  # and not the model's name, as with any endpoint
REGION = "us-west-2"
QUESTION = "What does /ping mean?"
ANSWER = by_name("ping").answer
# The same as the model's own chat template writes it, for clients that send a text.
PROMPT = f"<|bos|><|user|>{QUESTION}<|end|><|assistant|>"
# A tool whose only arguments are known, so that a small model can call it.
NAME, GIVEN = "ask", {"status": 200}
SCHEMA = {
    "type": "object",
    "properties": {"status": {"type": "integer", "enum": [200]}},
    "required": ["status"],
    "additionalProperties": False,
}
TOOL: Any = {"type": "function", "function": {"name": NAME, "description": "asks", "parameters": SCHEMA}}
CHOSEN: Any = {"type": "function", "function": {"name": NAME}}
MESSAGES: Any = [{"role": "user", "content": QUESTION}]
TOO_MANY = 2000  # tokens. The error names the context.
REFUSED = "1024"
# For modules whose client speaks to SageMaker: a gateway before the container, and a local SageMaker that hosts it.
EVERY_SAGEMAKER = pytest.mark.parametrize("runtime_url", ["gateway", "hosted"], indirect=True)
