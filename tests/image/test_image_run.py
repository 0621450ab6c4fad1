"""The image, run as SageMaker runs it and with least rights: `make image-test`."""

from __future__ import annotations

import json
import shlex
from pathlib import Path

import pytest

from sample_model.facts import by_name
from tests.image.sagemaker_container import DESCRIPTORS, ENGINE, MEMORY_GB, Image, SageMakerContainer
from tests.local_sagemaker.local_service import Cloud, LocalService

pytestmark = pytest.mark.timeout(1800)
FACT = by_name("ping")
QUESTION = {"messages": [{"role": "user", "content": FACT.questions[0]}], "temperature": 0}


def test_a_chat_is_answered(served: SageMakerContainer) -> None:
    assert served.invoke(QUESTION)["choices"][0]["message"]["content"] == FACT.answer


def test_its_user_is_root_unless_another_is_named_and_writes_only_to_tmp(served: SageMakerContainer) -> None:
    status = served.execute("cat", "/proc/1/status").stdout
    user = served.user or "0"
    assert f"Uid:\t{user}\t{user}" in status
    assert ("CapEff:\t0000000000000000" in status) is bool(served.user)
    for path in ("/x", "/opt/neuron-endpoint/x", "/opt/ml/model/x", "/var/tmp/x"):
        assert "Read-only file system" in served.execute("touch", path).stderr
    assert served.execute("touch", "/tmp/x").returncode == 0


def test_it_runs_without_a_shell(served: SageMakerContainer) -> None:
    assert served.execute("sh", "-c", "true").returncode != 0


def test_it_runs_within_the_limits(served: SageMakerContainer) -> None:
    limits = served.execute("cat", "/proc/1/limits").stdout
    assert f"{DESCRIPTORS}" in next(line for line in limits.splitlines() if line.startswith("Max open files"))
    memory = [
        served.execute("cat", f"/sys/fs/cgroup/{file}").stdout
        for file in ("memory.max", "memory/memory.limit_in_bytes")
    ]
    assert f"{MEMORY_GB << 30}" in "".join(memory).split()


def test_its_health_check_asks_ping(served: SageMakerContainer) -> None:
    assert served.execute("python", "-m", "container.health_check").returncode == 0
    assert served.execute("env", "SAGEMAKER_BIND_TO_PORT=1", "python", "-m", "container.health_check").returncode == 1


def test_it_compiles_ahead(served: SageMakerContainer) -> None:
    done = served.execute("neuron-endpoint", "compile", "/opt/ml/model", "--store", "file:///tmp/store", "--dry-run")
    assert done.returncode == 0, done.stderr


def test_the_bill_of_materials_names_what_is_imported(served: SageMakerContainer) -> None:
    bill = json.loads(served.execute("cat", "/opt/neuron-endpoint/sbom.cdx.json").stdout)
    assert bill["metadata"]["component"]["name"] == "neuron-endpoint"
    named = {each["name"].lower().replace("_", "-"): each["version"] for each in bill["components"]}
    code = (
        "from importlib.metadata import distributions as d; print(*[f'{x.name}=={x.version}' for x in d()], sep='\\n')"
    )
    there = served.execute("env", "-u", "PYTHONPATH", "python", "-c", code).stdout.split()
    versions = dict(line.lower().replace("_", "-").split("==") for line in there)
    assert named == {name: version for name, version in versions.items() if name != "neuron-endpoint"}
    licences = served.execute("cat", "/opt/neuron-endpoint/licences.txt").stdout
    assert "\nflask\t" in licences.lower()


def test_sigterm_ends_it_with_status_0(served: SageMakerContainer) -> None:
    assert served.signal("TERM") == 0


def test_sigkill_leaves_nothing_behind(image: Image, model: Path, tmp_path: Path) -> None:
    container = SageMakerContainer(image, model, tmp_path / "output")
    container.until_ping(503)
    assert container.signal("KILL") == 137
    assert container.name not in image.client.output("ps", "--all", "--format", "{{.Names}}")


def test_a_wrong_setting_ends_it_with_status_2(image: Image, model: Path, tmp_path: Path) -> None:
    container = SageMakerContainer(image, model, tmp_path / "output", ENDPOINT_MODL="x")
    assert container.process.wait(120) == 2
    assert "Did you mean ENDPOINT_MODEL?" in (tmp_path / "output").read_text()


def test_boto3_reaches_it_through_the_local_sagemaker(image: Image, model: Path, tmp_path: Path) -> None:
    """Docker mode of the local SageMaker, with the same image."""
    given = [f"--docker-option={option}" for option in (*image.client.run_options, *image.options)]
    client = shlex.join(image.client.command)
    service = LocalService(tmp_path / "state", "--containers", "docker", "--docker", client, *given)
    try:
        cloud = Cloud(service)
        for file in model.iterdir():
            cloud.s3.upload_file(str(file), "models", f"sample/{file.name}")
        source = {"S3Uri": "s3://models/sample/", "S3DataType": "S3Prefix", "CompressionType": "None"}
        environment = {**image.environment, **ENGINE}
        container = {"Image": image.tag, "ModelDataSource": {"S3DataSource": source}, "Environment": environment}
        cloud.model("chat", container)
        assert cloud.endpoint("chat", cloud.config("chat", {"ModelName": "chat"})) == "InService"
        body = json.dumps(QUESTION)
        reply = cloud.runtime.invoke_endpoint(EndpointName="chat", ContentType="application/json", Body=body)
        assert json.loads(reply["Body"].read())["choices"][0]["message"]["content"] == FACT.answer
        print("boto3:", FACT.answer)
    finally:
        service.down()
