"""What the clients ask, and where."""

from __future__ import annotations

import os
from pathlib import Path

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
