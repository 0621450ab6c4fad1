"""One server for the session, which has every parser (or those of `SERVED`), and an `openai` client of it."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import httpx
import pytest

from tests.installed_vllm import is_016
from tests.parsers.reply_formats import FAMILIES, REASONING_FORMATS

if TYPE_CHECKING:
    import openai

HERE = Path(__file__).parent
# Tool parsers whose streams are right on every V1 version if a step has one token.
ON_EVERY_VLLM = ("deepseek_v3", "deepseek_v31", "hermes", "mistral", "pythonic", "qwen3_coder", "xlam")
# What the server has on another version than 0.16.0, where the tests' tokenizer lacks tokens of `mistral` and `olmo3`.
SERVED = (
    *ON_EVERY_VLLM,
    *(f"+{name}" for name in REASONING_FORMATS if name not in {"mistral", "olmo3"}),
    *(name for name in FAMILIES if name != "olmo3+olmo3"),
)


@pytest.fixture(scope="session")
def replay(tmp_path_factory: pytest.TempPathFactory) -> Iterator[openai.OpenAI]:
    """A client of the product over `ReplayCore`. A message `STEP:HEX` makes the model say a text."""
    import openai

    log = tmp_path_factory.mktemp("replay") / "log"
    with log.open("wb") as errors:
        process = subprocess.Popen(
            [sys.executable, str(HERE / "replay_server.py"), *(() if is_016() else SERVED)],
            stdout=subprocess.PIPE,
            stderr=errors,
            start_new_session=True,
            env={
                **os.environ,
                "PYTHONPATH": str(HERE.parents[1]),
                "VLLM_LOGGING_STREAM": "ext://sys.stderr",
                "TMPDIR": str(log.parent),
            },
        )
    assert process.stdout is not None
    try:
        port = process.stdout.readline().decode().strip()
        assert port, log.read_text()
        url = f"http://127.0.0.1:{port}"
        with httpx.Client(trust_env=False, timeout=600) as http:
            while http.get(f"{url}/ping").status_code != 200:
                assert process.poll() is None, log.read_text()
                assert "Exception in thread" not in log.read_text(), log.read_text()
            legacy: Any = http  # newer ones are typed for httpx2, and take either
            yield openai.OpenAI(base_url=f"{url}/v1", api_key="unused", max_retries=0, http_client=legacy)
    finally:
        os.killpg(process.pid, signal.SIGKILL)  # the product's own end is tested elsewhere
        process.wait(60)
