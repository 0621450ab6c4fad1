"""What `deploy`, `check`, `compile` and `invoke` ask SageMaker for, against botocore's validators and bounds."""

from __future__ import annotations

import json
from dataclasses import dataclass
from functools import cache
from random import Random
from typing import Any

import botocore.session
import pytest
from botocore.model import StringShape, StructureShape
from botocore.validate import ParamValidator

import sample_model
from handler.neuron.checkpoint import checkpoint_reader
from handler.neuron.hardware.instance_catalogue import INSTANCES
from handler.storage.s3_client import make_client
from local_sagemaker.control import shapes
from model_packaging.client import EndpointClient
from model_packaging.compilation.compile_job import machines
from model_packaging.deployment.definition import instance_size
from model_packaging.package.sources import items
from tests.model_packaging.command import run

ROLE = "arn:aws:iam::123456789012:role/endpoint"
IMAGE = "123456789012.dkr.ecr.us-east-1.amazonaws.com/neuron-endpoint:0.1"
SERVICE = botocore.session.get_session().get_service_model("sagemaker")


def values(shape: str) -> list[str]:
    """What the service takes for a shape that is an enumeration."""
    found = SERVICE.shape_for(shape)
    assert isinstance(found, StringShape)
    return found.enum


TYPES = sorted(name for name in values("ProductionVariantInstanceType") if "inf" in name or "trn" in name)
TRANSFORM = set(values("TransformInstanceType"))
CALLS = {
    "model": "CreateModel",
    "endpoint_config": "CreateEndpointConfig",
    "endpoint": "CreateEndpoint",
    "component": "CreateInferenceComponent",
}


@pytest.fixture
def package(s3: Any) -> str:
    s3.create_bucket(Bucket="contract")
    to = "s3://contract/models/sample/"
    assert run("push", str(sample_model.path()), to).exit_code == 0
    return to


@dataclass(frozen=True)
class Combination:
    """One `deploy`, drawn by chance."""

    words: tuple[str, ...]
    instance: str
    sequences: int
    asynchronous: bool
    concurrency: int | None
    seconds: int | None
    multi_model: bool
    batch: bool

    @property
    def refused(self) -> bool:
        return (
            self.multi_model or self.instance.startswith("ml.inf1") or (self.batch and self.instance not in TRANSFORM)
        )


def draw(seed: int) -> Combination:
    chance = Random(seed)
    instance, sequences = chance.choice(TYPES), chance.choice((1, 4, 16, 1500))
    kind = chance.choice(("plain", "component", "async", "async"))
    multi_model, batch = chance.random() < 0.1, chance.random() < 0.1
    concurrency = chance.choice((None, None, 1, 1000)) if kind == "async" else None
    seconds = chance.choice((None, None, 1, 600, 3600)) if kind == "async" else None
    words = [
        "--instance",
        instance,
        "--set",
        f"SM_VLLM_MAX_NUM_SEQS={sequences}",
        "--instances",
        str(chance.randint(1, 3)),
    ]
    words += ["--component"] if kind == "component" else []
    words += ["--async-output", "s3://contract/out/"] if kind == "async" else []
    words += ["--async-concurrency", str(concurrency)] if concurrency else []
    words += ["--async-seconds", str(seconds)] if seconds else []
    words += ["--set", "SAGEMAKER_MULTI_MODEL=true"] if multi_model else []
    words += ["--set", "SAGEMAKER_BATCH=true"] if batch else []
    words += ["--subnet", "subnet-1", "--security-group", "sg-1"] if chance.random() < 0.3 else []
    words += ["--isolated"] if chance.random() < 0.2 else []
    words += ["--kms-key", "arn:aws:kms:us-east-1:123456789012:key/x"] if chance.random() < 0.2 else []
    words += ["--max", str(chance.randint(3, 9)), "--concurrency", "2"] if chance.random() < 0.4 else []
    words += ["--routing", "random"] if chance.random() < 0.2 else []
    words += ["--tag", "team=search"] if chance.random() < 0.2 else []
    words += ["--no-alarms"] if chance.random() < 0.2 else []
    words += ["--ami", "none"] if chance.random() < 0.2 else []
    return Combination(tuple(words), instance, sequences, kind == "async", concurrency, seconds, multi_model, batch)


@pytest.mark.slow
def test_400_combinations_are_requests_that_botocore_accepts(package: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Both validators: the one that boto3 runs, and all that the service's model says (enumerations, upper bounds)."""
    # The package is the same each time: it is read once.
    monkeypatch.setattr(checkpoint_reader, "read_facts", cache(checkpoint_reader.read_facts))
    monkeypatch.setattr(instance_size, "items", cache(items))
    monkeypatch.setattr("handler.config.loading.file_reader.make_client", cache(make_client))
    for seed in range(400):
        wanted = draw(seed)
        settings = ("--set", "SM_VLLM_MAX_MODEL_LEN=512", "--set", "SM_VLLM_TENSOR_PARALLEL_SIZE=1")
        result = run("deploy", "chat", package, "--image", IMAGE, "--role", ROLE, *settings, *wanted.words, "--dry-run")
        assert bool(result.exit_code) == wanted.refused, (seed, wanted, result.output)
        if wanted.refused:
            continue
        made = json.loads(result.stdout)
        for member, operation in CALLS.items():
            if made[member] is not None:
                shape = SERVICE.operation_model(operation).input_shape
                assert shape is not None
                assert not ParamValidator().validate(made[member], shape).has_errors(), (seed, operation)
                assert shapes.parse(shape, made[member]) == made[member], (seed, operation)
        config = made["endpoint_config"].get("AsyncInferenceConfig", {})
        slots = wanted.concurrency or min(wanted.sequences, 1000)
        expected = {"MaxConcurrentInvocationsPerInstance": slots} if wanted.asynchronous else {}
        assert config.get("ClientConfig", {}) == expected, (seed, wanted)
        environment = made["model"]["PrimaryContainer"]["Environment"]
        deadline = str(max(1, wanted.seconds - 10)) if wanted.seconds else None
        assert environment.get("ENDPOINT_DEADLINE") == deadline, (seed, wanted)


# A command and its options -> what it says before anything is created.
REFUSED = {
    "multi-model": (
        ("--instance", "ml.inf2.xlarge", "--set", "SAGEMAKER_MULTI_MODEL=true", "--no-check"),
        "--component",
    ),
    "multi-model of trn2": (("--instance", "ml.trn2.48xlarge", "--set", "ENDPOINT_MULTI_MODEL=true"), "--component"),
    "MaxConcurrentInvocationsPerInstance": (
        ("--instance", "ml.inf2.xlarge", "--async-output", "s3://contract/out/", "--async-concurrency", "1001"),
        "1<=x<=1000",
    ),
    "InvocationTimeoutSeconds": (
        ("--instance", "ml.inf2.xlarge", "--async-output", "s3://contract/out/", "--async-seconds", "3601"),
        "1<=x<=3600",
    ),
    "not asynchronous": (("--instance", "ml.inf2.xlarge", "--async-seconds", "900"), "go with --async-output"),
    "inf1": (("--instance", "ml.inf1.xlarge"), "ml.inf2.xlarge or larger"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_deploy_refuses(package: str, name: str) -> None:
    words, said = REFUSED[name]
    result = run("deploy", "chat", package, "--image", IMAGE, "--role", ROLE, *words, "--dry-run")
    assert result.exit_code in (1, 2), result.output
    assert said in result.output


@pytest.mark.parametrize(
    ("instance", "failed"), [("ml.trn2.48xlarge", True), ("ml.trn1.2xlarge", False), ("trn2.3xlarge", False)]
)
def test_check_knows_where_batch_transform_runs(tmp_path: Any, instance: str, failed: bool) -> None:
    (tmp_path / "env").write_text("SAGEMAKER_BATCH=true\nSM_VLLM_MAX_MODEL_LEN=512\nSM_VLLM_TENSOR_PARALLEL_SIZE=1\n")
    words = ("check", str(sample_model.path()), "--env-file", str(tmp_path / "env"), "--instance", instance, "--json")
    found = {finding["code"] for finding in json.loads(run(*words).stdout)["findings"]}
    assert ("no-transform" in found) is failed


@pytest.mark.parametrize("instance", [name for name in TYPES if "inf1" not in name])
def test_compile_runs_where_training_jobs_run(instance: str) -> None:
    """SageMaker has no training jobs on Inf2, so that its artifacts are made on Trn1."""
    on, target = machines(instance, None)
    assert on in values("TrainingInstanceType")
    assert target == instance


class Recorded:
    """boto3's client of the runtime."""

    def __init__(self) -> None:
        self.asked: dict[str, Any] = {}

    def invoke_endpoint_async(self, **asked: Any) -> dict[str, Any]:
        self.asked = asked
        return {}


@pytest.mark.parametrize(("words", "seconds"), [((), 900), (("--async-seconds", "3600"), 3600)])
def test_invoke_sends_the_time_that_it_allows(
    monkeypatch: pytest.MonkeyPatch, words: tuple[str, ...], seconds: int
) -> None:
    recorded = Recorded()
    client = EndpointClient("chat", runtime=recorded)  # type: ignore[arg-type]  # a stand-in
    monkeypatch.setattr("model_packaging.client.EndpointClient", lambda *_, **__: client)
    assert run("invoke", "chat", "--async", "s3://contract/in.json", *words).exit_code == 0
    assert recorded.asked["InvocationTimeoutSeconds"] == seconds
    shape = botocore.session.get_session().get_service_model("sagemaker-runtime").operation_model("InvokeEndpointAsync")
    assert shapes.parse(shape.input_shape, recorded.asked) == recorded.asked


def test_a_key_is_accepted_where_the_disks_are_nvme() -> None:
    """Older texts said that CreateEndpointConfig fails with a key on such instances."""
    shape = SERVICE.shape_for("CreateEndpointConfigInput")
    assert isinstance(shape, StructureShape)
    said = shape.members["KmsKeyId"].documentation
    assert "does not encrypt instance local storage" in said
    assert "fails" not in said


@pytest.mark.parametrize("instance", ["ml.inf2.48xlarge", "ml.trn2.48xlarge"])
def test_a_component_takes_all_chips(package: str, instance: str) -> None:
    words = ("--image", IMAGE, "--role", ROLE, "--instance", instance, "--component", "--no-check", "--dry-run")
    made = json.loads(run("deploy", "chat", package, *words).stdout)["component"]["Specification"]
    chips = made["ComputeResourceRequirements"]["NumberOfAcceleratorDevicesRequired"]
    assert chips == next(each.chips for each in INSTANCES if f"ml.{each.name}" == instance)
