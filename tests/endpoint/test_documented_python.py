"""The Python and curl of the README and docs/packaging.md, run as they are printed, but for addresses and names."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from sample_model import facts
from tests.aws_keys import VARIABLES
from tests.endpoint.serve_process import ServeProcess

pytestmark = pytest.mark.engine
ROOT = Path(__file__).parents[2]


def blocks(page: str, language: str) -> list[str]:
    text = (ROOT / page).read_text()
    return re.findall(rf"^```{language}\n(.*?)^```", text, re.MULTILINE | re.DOTALL)


def test_every_block_prints_the_answer(endpoint: ServeProcess, gateway: str) -> None:
    places = {"http://127.0.0.1:8080": endpoint.url, "http://127.0.0.1:8090": gateway}
    places['EndpointClient("chat")'] = 'EndpointClient("sample")'
    python = [*blocks("README.md", "python"), *blocks("docs/packaging.md", "python")]
    assert len(python) == 3
    curl = [text for text in blocks("README.md", "sh") if text.startswith("curl ")]
    assert len(curl) == 1
    environ = {
        **os.environ,
        "PYTHONPATH": str(ROOT),
        "AWS_ENDPOINT_URL_SAGEMAKER_RUNTIME": gateway,
        **VARIABLES,
        "NO_PROXY": "127.0.0.1",
    }
    for text in [*python, *curl]:
        for printed, here in places.items():
            text = text.replace(printed, here)
        words = ["bash", "-c", text] if text.startswith("curl ") else [sys.executable, "-c", text]
        done = subprocess.run(words, env=environ, capture_output=True, text=True, timeout=60)
        assert facts.by_name("ping").answer in done.stdout, text + done.stderr
