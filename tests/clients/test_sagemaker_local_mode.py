"""The local mode of the SageMaker SDKs (2 and 3): its endpoint and its batch transform drive the container.

The SDKs start the container by docker compose. Here a process of `serve` stands in the place of that one class. All
else is the SDK's: the container's variables, the wait for /ping, /execution-parameters, the split into records, the
requests, and the assembly of the replies.
"""

from __future__ import annotations

import importlib
import json
from collections.abc import Callable, Iterator
from importlib.util import find_spec
from pathlib import Path
from typing import Any, ClassVar

import pytest

from tests.clients.asked import ANSWER, BIN, QUESTION, ROOT
from tests.clients.conftest import WEIGHTS
from tests.endpoint import serve_process
from tests.endpoint.serve_process import ServeProcess

SDK = "sagemaker.core.local" if find_spec("sagemaker.core") else "sagemaker.local"
entities = importlib.import_module(f"{SDK}.entities")
local_session = importlib.import_module(f"{SDK}.local_session")
CHAT = json.dumps({"messages": [{"role": "user", "content": QUESTION}], "temperature": 0})
RECORDS = [CHAT, "", '{"messages": [', CHAT]
ENDED = {"Image": "neuron-endpoint", "ModelDataUrl": "file:///nothing", "Environment": {"SM_VLLM_MAX_MODEL_LEN": "512"}}


class Container:
    """Stands in the place of the SDK's `_SageMakerContainer`, which runs docker compose."""

    directory: Path
    started: ClassVar[list[Container]] = []

    def __init__(self, instance_type: str, instance_count: int, image: str, session: Any) -> None:
        self.session = session
        self.environment: dict[str, str] = {}

    def serve(self, model_dir: str, environment: dict[str, str]) -> None:
        serve_process.SERVE = BIN / "serve"
        base = self.directory / "opt-ml"
        base.mkdir()
        (base / "model").symlink_to(WEIGHTS)
        self.environment = environment
        mine = {
            "PYTHONPATH": str(ROOT),
            "SAGEMAKER_BASE_DIR": str(base),
            "ENDPOINT_SCRATCH": str(self.directory / "scratch"),
        }
        self.process = ServeProcess(self.directory, {**mine, **environment})
        self.session.config = {"local": {"serving_port": self.process.port, "container_root": str(self.directory)}}
        self.session.sagemaker_runtime_client.config = self.session.config
        self.process.wait_ready()
        Container.started.append(self)

    def stop_serving(self) -> None:
        self.process.terminate()


@pytest.fixture
def runtime_url() -> str:
    """Not asked: the SDK asks the container itself."""
    return "http://127.0.0.1:9"


@pytest.fixture
def session(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[Any]:
    monkeypatch.setattr(entities, "_SageMakerContainer", Container)
    Container.directory, Container.started = tmp_path / "container", []
    Container.directory.mkdir()
    yield local_session.LocalSession()
    for container in Container.started:
        container.stop_serving()


@pytest.fixture
def transform(session: Any, tmp_path: Path) -> Callable[..., list[str]]:
    def run(**members: Any) -> list[str]:
        (tmp_path / "in").mkdir()
        (tmp_path / "in" / "a").write_text("\n".join(RECORDS) + "\n")
        session.sagemaker_client.create_model("sample", ENDED)
        source = {"DataSource": {"S3DataSource": {"S3Uri": f"file://{tmp_path}/in", "S3DataType": "S3Prefix"}}}
        session.sagemaker_client.create_transform_job(
            "job",
            "sample",
            {**source, "SplitType": "Line", "ContentType": "application/jsonlines"},
            {"S3OutputPath": f"file://{tmp_path}/out", "AssembleWith": "Line"},
            {"InstanceType": "local", "InstanceCount": 1},
            **members,
        )
        (output,) = (tmp_path / "out").rglob("a.out")
        return output.read_text().removesuffix("\n").split("\n")

    return run


@pytest.mark.parametrize(("strategy", "variable"), [("SingleRecord", "SINGLE_RECORD"), ("MultiRecord", "MULTI_RECORD")])
def test_a_transform_job_of_each_strategy(transform: Callable[..., list[str]], strategy: str, variable: str) -> None:
    lines = transform(BatchStrategy=strategy, MaxPayloadInMB=6)
    (container,) = Container.started
    said = {name: value for name, value in container.environment.items() if name.startswith("SAGEMAKER_")}
    assert said == {
        "SAGEMAKER_BATCH": "True",
        "SAGEMAKER_BATCH_STRATEGY": variable,
        "SAGEMAKER_MAX_PAYLOAD_IN_MB": "6",
        "SAGEMAKER_MAX_CONCURRENT_TRANSFORMS": "1",
    }
    replies = [json.loads(line) for line in lines]  # and no blank line
    assert [reply.get("error", {}).get("code") for reply in replies] == [None, "invalid_body", "invalid_body", None]
    assert {replies[index]["choices"][0]["message"]["content"] for index in (0, 3)} == {ANSWER}


def test_a_payload_of_0_is_one_body(transform: Callable[..., list[str]]) -> None:
    lines = transform(BatchStrategy="MultiRecord", MaxPayloadInMB=0)
    assert len(lines) == len(RECORDS)
    assert Container.started[0].environment["SAGEMAKER_MAX_PAYLOAD_IN_MB"] == "0"


def test_the_sdk_takes_the_guides_spelling_of_a_containers_strategy_for_none(
    transform: Callable[..., list[str]],
) -> None:
    """The guide's example and public containers answer MULTI_RECORD; this local mode reads the API's spelling only."""
    with pytest.raises(ValueError, match="Invalid Batch Strategy"):
        transform()


def test_an_endpoint(session: Any) -> None:
    client = session.sagemaker_client
    client.create_model("sample", ENDED)
    client.create_endpoint_config(
        "sample", [{"ModelName": "sample", "InstanceType": "local", "InitialInstanceCount": 1, "VariantName": "all"}]
    )
    client.create_endpoint("sample", "sample")
    assert client.describe_endpoint("sample")["EndpointStatus"] == "InService"
    reply = session.sagemaker_runtime_client.invoke_endpoint(
        CHAT,
        "sample",
        "application/json",
        "application/json",
        CustomAttributes="a=1",
        TargetVariant="all",
        InferenceId="1",
    )
    assert json.loads(reply["Body"].read())["choices"][0]["message"]["content"] == ANSWER
