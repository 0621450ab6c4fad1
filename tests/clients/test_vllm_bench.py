"""`vllm bench serve`, of the endpoint's own vLLM: what people measure an endpoint with."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path

import pytest

from tests.clients.asked import BIN, ROOT
from tests.endpoint.serve_process import ServeProcess

REQUESTS, TOKENS = 24, 16


@pytest.mark.parametrize(("backend", "path"), [("openai-chat", "/v1/chat/completions"), ("openai", "/v1/completions")])
def test_every_request_is_answered_to_the_token(
    endpoint: ServeProcess, tmp_path: Path, backend: str, path: str
) -> None:
    model = endpoint.client.get("/v1/models").json()["data"][0]["id"]
    command = [str(BIN / "vllm"), "bench", "serve", "--backend", backend, "--base-url", endpoint.url]
    command += ["--endpoint", path, "--model", model, "--tokenizer", str(ROOT / "sample_model" / "weights")]
    command += ["--dataset-name", "random", "--random-input-len", "32", "--random-output-len", str(TOKENS)]
    command += [
        "--num-prompts",
        str(REQUESTS),
        "--max-concurrency",
        "8",
        "--ignore-eos",
        "--ready-check-timeout-sec",
        "0",
    ]
    command += ["--save-result", "--result-dir", str(tmp_path), "--result-filename", "result.json"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=200)
    assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-2000:]
    result = json.loads((tmp_path / "result.json").read_text())
    assert (result["completed"], result["failed"]) == (REQUESTS, 0)
    assert result["total_output_tokens"] == REQUESTS * TOKENS
    assert result["median_ttft_ms"] > 0
    assert result["median_tpot_ms"] > 0
