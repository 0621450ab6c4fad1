"""The owner's code through `serve`: with the engine as its model, and without any engine."""

from __future__ import annotations

import json
import shutil
from importlib.metadata import metadata
from pathlib import Path

import pytest

import sample_model
from sample_model.facts import by_name
from tests.endpoint.serve_process import STARTED_WITHIN, ServeProcess

QUESTION = "What does /ping mean?"
HOOKS = """
def input_fn(data, content_type):
    return data.decode() if isinstance(data, bytes) else data

def predict_fn(question, model):
    if question == "fail":
        raise ValueError("this question is not for me")
    return model.stream([{"role": "user", "content": question}], temperature=0)
"""
PING = """
import model_hosting_container_standards.sagemaker as sagemaker_standards
from fastapi import Response

@sagemaker_standards.custom_ping_handler
async def ping():
    return Response("my own, with vLLM's package", 201)
"""
ISOLATED = {"ENDPOINT_REQUIREMENTS": "download", "ENDPOINT_NETWORK_ISOLATION": "true"}
ALONE = """
import os

def model_fn(model_dir):
    return sorted(os.listdir(model_dir))

async def predict_fn(data, model, context):
    context.set_response_header(0, "X-Amzn-SageMaker-Custom-Attributes", "own=1")
    return {"files": model, "data": data}
"""


def put(directory: Path, text: str) -> Path:
    code = directory / "code"
    code.mkdir(parents=True)
    (code / "inference.py").write_text(text)
    return directory


@pytest.mark.engine
def test_hooks_over_the_engine(tmp_path: Path) -> None:
    model = tmp_path / "model"
    shutil.copytree(sample_model.path(), model)
    put(model, HOOKS)
    (model / "model.py").write_text(PING)
    served = ServeProcess(
        tmp_path / "run", {"ENDPOINT_MODEL": str(model), "ENDPOINT_SCRATCH": str(tmp_path / "scratch")}
    )
    try:
        served.wait_port()
        served.until(lambda: served.ping() == (201, "my own, with vLLM's package"), STARTED_WITHIN)
        text = {"Content-Type": "text/plain"}
        with served.client.stream("POST", "/invocations", content=QUESTION, headers=text) as reply:
            assert reply.headers["content-type"] == "application/jsonlines"
            pieces = [json.loads(line) for line in reply.iter_lines()]
        assert len(pieces) > 2
        assert "".join(pieces) == by_name("ping").answer
        failed = served.client.post("/invocations", content="fail", headers=text)
        assert failed.status_code == 500
        assert failed.json()["error"]["message"] == "predict_fn raised ValueError: this question is not for me"
        chat = {"messages": [{"role": "user", "content": QUESTION}], "temperature": 0}
        answer = served.client.post("/v1/chat/completions", json=chat).json()["choices"][0]["message"]["content"]
        assert answer == by_name("ping").answer
        served.until(lambda: served.metric("endpoint_requests_in_engine") == 0, 20)
    finally:
        assert served.terminate() == 0, served.log
    assert "load model.py" in served.log


def test_code_alone_starts_without_an_engine(tmp_path: Path) -> None:
    model = put(tmp_path / "model", ALONE)
    (model / "code" / "requirements.txt").write_text("numpy\n")
    with ServeProcess(tmp_path / "run", {"ENDPOINT_MODEL": str(model), "ENDPOINT_ENGINE": "none"}).serving(
        60
    ) as served:
        reply = served.client.post("/invocations", json={"a": 1})
        assert reply.json() == {"files": ["code"], "data": {"a": 1}}
        assert reply.headers["X-Amzn-SageMaker-Custom-Attributes"] == "own=1"
        assert served.client.get("/v1/models").status_code == 404
        assert served.engine_pids() == []
    assert "import vLLM" not in served.log


def test_an_example_of_the_aws_images_runs_unchanged_without_an_engine(tmp_path: Path) -> None:
    """The README's customization of model_hosting_container_standards, over HTTP."""
    readme = metadata("model-hosting-container-standards")["Description"]
    example = readme.split("### 2. Customer Script Customization")[1].split("```python\n")[1].split("```")[0]
    (tmp_path / "model").mkdir()
    (tmp_path / "model" / "model.py").write_text(example)
    with ServeProcess(tmp_path / "run", {"ENDPOINT_MODEL": str(tmp_path / "model"), "ENDPOINT_ENGINE": "none"}).serving(
        60
    ) as served:
        assert served.ping() == (200, "OK")
        reply = served.client.post("/invocations", json={"a": 1})
        assert (reply.status_code, reply.json()) == (200, {"result": "processed"})
        bad = served.client.post("/invocations", content=b"no json")
        assert (bad.status_code, bad.json()["error"]["code"]) == (500, "custom_code_failed")
        assert served.ping() == (200, "OK")
    assert "load model.py" in served.log  # the package's import does not silence the log


@pytest.mark.parametrize(
    ("text", "required", "settings", "status", "said"),
    [
        ("def model_fn(model_dir): raise OSError('no weights')", "", {}, 3, "model_fn raised OSError: no weights"),
        ("", "numpy==1.0.1", {}, 3, "code/requirements.txt: pip failed with status 1"),
        ("", "numpy", ISOLATED, 2, "network isolation"),
        (ALONE, "", {"ENDPOINT_CUSTOM_CODE": "false"}, 3, "ENDPOINT_CUSTOM_CODE"),
    ],
)
def test_a_start_that_cannot_work_ends_with_the_reason(
    tmp_path: Path, text: str, required: str, settings: dict[str, str], status: int, said: str
) -> None:
    model = put(tmp_path / "model", text)
    if required:
        (model / "code" / "requirements.txt").write_text(f"{required}\n")
    environment = {"ENDPOINT_MODEL": str(model), "ENDPOINT_ENGINE": "none", **settings}
    served = ServeProcess(tmp_path / "run", environment)
    assert served.process.wait(60) == status
    served.client.close()
    assert said in served.log
