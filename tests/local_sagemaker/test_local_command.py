"""``neuron-endpoint local`` as it is typed: up, down, status, and what it says where it can't."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
from pathlib import Path

import click
import pytest
from botocore.exceptions import WaiterError
from click.testing import CliRunner

from local_sagemaker.cli import start
from local_sagemaker.state_directory import StateDirectory
from model_packaging.cli import main
from tests.local_sagemaker.local_service import COMMAND, LocalService, run


def test_it_goes_up_and_down(tmp_path: Path) -> None:
    service = LocalService(tmp_path / "deep" / "the stäte")
    try:
        assert service.exports.keys() == {
            "AWS_ENDPOINT_URL_SAGEMAKER",
            "AWS_ENDPOINT_URL_SAGEMAKER_RUNTIME",
            "AWS_ENDPOINT_URL_APPLICATION_AUTO_SCALING",
            "AWS_ENDPOINT_URL_S3",
            "AWS_ENDPOINT_URL_CLOUDWATCH",
            "AWS_ACCESS_KEY_ID",
            "AWS_SECRET_ACCESS_KEY",
            "AWS_DEFAULT_REGION",
            "AWS_REGION",
            "AWS_IGNORE_CONFIGURED_ENDPOINT_URLS",
            "no_proxy",
            "LOCAL_SAGEMAKER_STATE",
        }
        code = "import boto3; print(boto3.client('sagemaker').list_endpoints()['Endpoints'])"
        pasted = {**os.environ, **service.exports}
        assert subprocess.check_output([sys.executable, "-c", code], env=pasted, text=True) == "[]\n"
        shown = subprocess.run([COMMAND, "local", "status"], env=pasted, capture_output=True, text=True, check=True)
        assert service.url in shown.stdout
        assert service.command("env").stdout.splitlines()[0] == f"export AWS_ENDPOINT_URL_SAGEMAKER={service.url}"
        again = service.command("up")
        assert again.returncode == 1
        assert again.stderr.startswith(f"Error: it is already up, at {service.url} (process ")
        with pytest.raises(click.ClickException, match="is in use by another local SageMaker"):
            start(StateDirectory(service.state))  # what a second `up` does that began before the first one was ready
        pid = json.loads(service.command("status", "--json").stdout)["pid"]
    finally:
        service.down()
    assert not Path(f"/proc/{pid}").exists() or "Z" in Path(f"/proc/{pid}/stat").read_text().split()
    for command in ("status", "down", "env"):
        ended = service.command(command)
        assert (ended.returncode, ended.stderr) == (
            1,
            f"Error: nothing is up on {service.state}. Start it: neuron-endpoint local up\n",
        )


NOBODY = "http://127.0.0.1:9"
ASKS_S3 = """
import boto3
boto3.client("s3").create_bucket(Bucket="models")
create = boto3.client("sagemaker").create_model
role, container = "arn:aws:iam::123456789012:role/sagemaker", {"Image": "i", "ModelDataUrl": "s3://models/none"}
try:
    create(ModelName="m", ExecutionRoleArn=role, PrimaryContainer=container)
except Exception as error:
    print(error)
"""


def test_a_proxy_and_settings_of_the_caller_do_not_lead_elsewhere(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    hosts = {"no_proxy": "intern.example", "AWS_IGNORE_CONFIGURED_ENDPOINT_URLS": "true"}
    for name, value in {"http_proxy": NOBODY, "HTTP_PROXY": NOBODY, "HTTPS_PROXY": NOBODY, **hosts}.items():
        monkeypatch.setenv(name, value)
    service = LocalService(tmp_path)
    try:
        assert service.exports["no_proxy"] == "intern.example,127.0.0.1"
        pasted = {**os.environ, **service.exports}
        said = subprocess.check_output([sys.executable, "-c", ASKS_S3], env=pasted, text=True)
        assert "Could not find model data at s3://models/none" in said
        assert "no_proxy=intern.example,127.0.0.1\n" in subprocess.check_output(
            [COMMAND, "local", "env"], env=pasted, text=True
        )
        own = {**os.environ, "AWS_DEFAULT_PROFILE": "of-another-account", "LOCAL_SAGEMAKER_STATE": str(tmp_path)}
        asked = subprocess.run([COMMAND, "invoke", "--local", "none", "x"], env=own, capture_output=True, text=True)
        assert "Endpoint none of account 123456789012 not found" in asked.stderr
    finally:
        service.down()


def test_a_temporary_state_directory_is_new(tmp_path: Path) -> None:
    started = subprocess.run(
        [COMMAND, "local", "up", "--temporary", "--with-process", str(os.getpid())],
        capture_output=True,
        text=True,
        check=True,
        env={**os.environ, "TMPDIR": str(tmp_path)},
    )
    state = started.stdout.rpartition("LOCAL_SAGEMAKER_STATE=")[2].strip()
    try:
        assert Path(state).parent == tmp_path
    finally:
        assert run("down", "--state", state).returncode == 0


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (["--image", "no-command"], "'no-command' is not of the form IMAGE=COMMAND"),
        (["--image", "a="], "'a=' is not of the form IMAGE=COMMAND"),
        (["--env", "=b"], "'=b' is not of the form NAME=VALUE"),
        (["--docker", "podman '"], "No closing quotation"),
        (["--docker", ""], "'' names no Docker client"),
        (["--cut-parts", "0"], "'0' is neither a number of bytes above 0 nor 'random'"),
        (["--speed", "0"], "0.0 is not in the range x>0"),
        (["--speed", "nan"], "'nan' is not a finite number"),
        (["--ping-every", "inf"], "'inf' is not a finite number"),
        (["--region", "not a region"], "'not a region' is not a region, such as eu-west-1"),
        (["--region", ""], "'' is not a region, such as eu-west-1"),
        (["--port", "65536"], "65536 is not in the range 0<=x<=65535"),
    ],
)
def test_a_wrong_option_is_said_plainly(tmp_path: Path, options: list[str], said: str) -> None:
    ended = run("up", "--state", str(tmp_path), *options)
    assert ended.returncode == 2
    assert said in ended.stderr
    assert "Traceback" not in ended.stderr


def test_a_port_that_is_taken_is_said(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        ended = run("up", "--state", str(tmp_path), "--port", str(taken.getsockname()[1]))
    assert ended.returncode == 1
    assert "it did not start" in ended.stderr
    assert "Address already in use" in ended.stderr
    assert "Traceback" not in ended.stderr
    assert run("status", "--state", str(tmp_path)).returncode == 1


def test_a_region_and_an_images_command_are_kept(tmp_path: Path) -> None:
    first = LocalService(tmp_path, "--region", "eu-west-1", "--image", "missing=/no/such/command")
    first.down()
    second = LocalService(tmp_path)
    try:
        assert second.exports == first.exports
        assert second.exports["AWS_DEFAULT_REGION"] == "eu-west-1"
        client = second.client("sagemaker")
        created = client.create_model(ModelName="m", PrimaryContainer={"Image": "missing:1"})
        assert created["ModelArn"] == "arn:aws:sagemaker:eu-west-1:123456789012:model/m"
        variant = {"VariantName": "v", "ModelName": "m", "InstanceType": "ml.inf2.xlarge", "InitialInstanceCount": 1}
        client.create_endpoint_config(EndpointConfigName="c", ProductionVariants=[variant])
        client.create_endpoint(EndpointName="e", EndpointConfigName="c")
        with pytest.raises(WaiterError):
            client.get_waiter("endpoint_in_service").wait(EndpointName="e", WaiterConfig={"Delay": 1})
        reason = client.describe_endpoint(EndpointName="e")["FailureReason"]
        assert "/no/such/command" in reason
    finally:
        second.down()


def test_a_process_that_has_the_number_of_an_earlier_service_is_left_alone(tmp_path: Path) -> None:
    service = LocalService(tmp_path)
    left = (tmp_path / "running.json").read_text()
    pid = json.loads(service.command("status", "--json").stdout)["pid"]
    service.down()
    with subprocess.Popen(["sleep", "600"]) as other:
        try:
            (tmp_path / "running.json").write_text(left.replace(f'"pid":{pid}', f'"pid":{other.pid}'))
            for command in (["status"], ["down"]):
                ended = service.command(*command)
                assert (ended.returncode, "nothing is up" in ended.stderr) == (1, True)
            service.up()
            service.down()
            (tmp_path / "running.json").write_text(left.replace(f'"pid":{pid}', f'"pid":{other.pid}'))
            assert service.command("down", "--purge").returncode == 0
            assert other.poll() is None
        finally:
            other.kill()


def test_settings_of_an_older_version_are_read(tmp_path: Path) -> None:
    (tmp_path / "settings.json").write_text('{"port": 4711, "images": ["a=b"], "quotas": ["model=2"]}')
    settings = StateDirectory(tmp_path).settings()
    assert (settings.port, settings.images) == (4711, ("a=b",))


@pytest.mark.parametrize("name", ["settings.json", "running.json"])
@pytest.mark.parametrize("content", [b"{", b'{"pid": "x", "port": "x"}', b"\xff"])
def test_a_file_of_the_state_directory_that_cannot_be_read_is_named(tmp_path: Path, name: str, content: bytes) -> None:
    (tmp_path / name).write_bytes(content)
    result = CliRunner().invoke(main, ["local", "up", "--state", str(tmp_path)])
    assert (result.exit_code, result.stdout) == (1, "")
    assert result.stderr.startswith(f"Error: {tmp_path}/{name}: cannot be read (")
    assert result.stderr.endswith("Delete it.\n")


@pytest.mark.parametrize("option", ["--state", "--bucket"])
def test_up_takes_no_directory_of_others_and_no_bucket_that_is_none(tmp_path: Path, option: str) -> None:
    (tmp_path / "settings.json").write_text('{"mine": 1}')
    more = ["--bucket", "Bad_Name"] if option == "--bucket" else []
    result = CliRunner().invoke(main, ["local", "up", "--state", str(tmp_path), *more])
    assert result.exit_code != 0
    assert {path.name for path in tmp_path.iterdir()} == {"settings.json"}
    assert (tmp_path / "settings.json").read_text() == '{"mine": 1}'


def test_settings_that_cannot_be_read_are_purged(tmp_path: Path) -> None:
    (tmp_path / "settings.json").write_text("{")
    result = CliRunner().invoke(main, ["local", "down", "--purge", "--state", str(tmp_path)])
    assert (result.exit_code, [*tmp_path.iterdir()]) == (0, [])


def test_the_command_line_does_not_load_the_server() -> None:
    code = (
        "import sys, model_packaging.cli; print(sorted({'flask', 'botocore', 'gunicorn', 'moto'} & set(sys.modules)))"
    )
    assert subprocess.check_output([sys.executable, "-c", code], text=True) == "[]\n"
