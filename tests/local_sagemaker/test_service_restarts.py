"""Ended, killed, orphaned: what is there again at the next `up`, and that nothing is left running."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest
from botocore.exceptions import BotoCoreError
from local_service import COMMAND, QUICK, Cloud, LocalService, gone, run, until
from test_endpoint_start import ask, started

PART = 5 * 1024 * 1024
ODD_KEY = "ein größeres/Ding~ +&?#%41.txt"


@pytest.fixture(scope="module")
def service(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LocalService]:
    service = LocalService(tmp_path_factory.mktemp("restart"), *QUICK)
    yield service
    service.down()


@pytest.fixture(scope="module")
def own(service: LocalService) -> Cloud:
    return Cloud(service)


def processes(service: LocalService) -> list[int]:
    """The service's own, its worker's, S3's and the containers'."""
    pid = json.loads(service.command("status", "--json").stdout)["pid"]
    return [pid, *(child.pid for child in psutil.Process(pid).children(recursive=True))]


def test_what_was_in_service_is_again_after_down_and_up(own: Cloud) -> None:
    service = own.service
    own.s3.put_object(Bucket="models", Key="kept", Body=b"still there", Metadata={"a": "b"}, ContentType="text/x")
    started(own, "kept", STUB_VERSION="v1")
    own.sagemaker.delete_model(ModelName="kept")
    (before,) = own.instances("kept")
    service.down()
    assert gone(before["pid"])
    exports = service.exports
    service.up()
    assert service.exports == exports
    found = own.s3.get_object(Bucket="models", Key="kept")
    assert (found["Body"].read(), found["Metadata"], found["ContentType"]) == (b"still there", {"a": "b"}, "text/x")
    assert own.settled("kept")["EndpointStatus"] == "InService"
    assert ask(own, "kept")["version"] == "v1"


def test_a_service_that_is_killed_leaves_nothing_running_and_loses_nothing(own: Cloud) -> None:
    s3 = own.s3
    started(own, "killed-service", STUB_VERSION="v1")
    s3.put_object(Bucket="models", Key=ODD_KEY, Body=b"old")
    s3.put_object(Bucket="models", Key=ODD_KEY, Body=b"new", ContentEncoding="x", CacheControl="no-store")
    s3.copy_object(Bucket="models", Key="copy", CopySource={"Bucket": "models", "Key": ODD_KEY})
    for key in ("deleted", "deleted-1", "deleted-2"):
        s3.put_object(Bucket="models", Key=key, Body=b"x")
    s3.delete_object(Bucket="models", Key="deleted")
    s3.delete_objects(Bucket="models", Delete={"Objects": [{"Key": "deleted-1"}, {"Key": "deleted-2"}]})
    upload = s3.create_multipart_upload(Bucket="models", Key="parts", ContentType="text/parts")["UploadId"]
    parts = [
        s3.upload_part(Bucket="models", Key="parts", UploadId=upload, PartNumber=number, Body=body)["ETag"]
        for number, body in ((1, b"1" * PART), (2, b"2"))
    ]
    unfinished = s3.create_multipart_upload(Bucket="models", Key="unfinished")["UploadId"]
    s3.upload_part(Bucket="models", Key="unfinished", UploadId=unfinished, PartNumber=1, Body=b"x")
    together = {"Parts": [{"PartNumber": number, "ETag": tag} for number, tag in enumerate(parts, 1)]}
    s3.complete_multipart_upload(Bucket="models", Key="parts", UploadId=upload, MultipartUpload=together)
    s3.create_bucket(Bucket="empty", CreateBucketConfiguration={"LocationConstraint": "eu-west-1"})
    s3.create_bucket(Bucket="gone")
    s3.delete_bucket(Bucket="gone")
    tag = s3.head_object(Bucket="models", Key=ODD_KEY)["ETag"]

    running = processes(own.service)
    os.kill(running[0], signal.SIGKILL)
    until(lambda: all(gone(pid) for pid in running))
    own.service.up()

    assert {each["Name"] for each in s3.list_buckets()["Buckets"]} == {"models", "empty"}
    assert s3.get_bucket_location(Bucket="empty")["LocationConstraint"] == "eu-west-1"
    keys = {each["Key"] for each in s3.list_objects_v2(Bucket="models")["Contents"]}
    assert keys >= {ODD_KEY, "copy", "parts"}
    assert not keys & {"deleted", "deleted-1", "deleted-2", "unfinished"}
    found = s3.get_object(Bucket="models", Key=ODD_KEY)
    assert (found["Body"].read(), found["ETag"], found["CacheControl"]) == (b"new", tag, "no-store")
    assert s3.get_object(Bucket="models", Key="copy")["Body"].read() == b"new"
    found = s3.get_object(Bucket="models", Key="parts")
    assert (found["Body"].read(), found["ContentType"]) == (b"1" * PART + b"2", "text/parts")
    assert own.settled("killed-service")["EndpointStatus"] == "InService"
    assert ask(own, "killed-service")["version"] == "v1"


def test_many_writers_of_one_object_leave_the_last(own: Cloud) -> None:
    """Each change is in its file before it is answered, also where two cross."""
    code = (
        "import sys, boto3\n"
        "from concurrent.futures import ThreadPoolExecutor\n"
        "s3 = boto3.client('s3')\n"
        "put = lambda n: s3.put_object(Bucket='models', Key='raced', Body=b'%d' % n)\n"
        "list(ThreadPoolExecutor(8).map(put, range(80)))\n"
        "print(s3.get_object(Bucket='models', Key='raced')['Body'].read().decode())\n"
    )
    environ = {**os.environ, **own.service.exports}
    last = subprocess.check_output([sys.executable, "-c", code], env=environ, text=True).strip()
    running = processes(own.service)
    os.kill(running[0], signal.SIGKILL)
    until(lambda: all(gone(pid) for pid in running))
    own.service.up()
    assert own.s3.get_object(Bucket="models", Key="raced")["Body"].read().decode() == last


def test_an_s3_server_that_dies_comes_back_with_its_objects(own: Cloud) -> None:
    own.s3.put_object(Bucket="models", Key="through", Body=b"thick and thin")
    service = psutil.Process(processes(own.service)[0])
    (server,) = [child for child in service.children() if "local_sagemaker.s3.s3_process" in child.cmdline()]
    server.kill()

    def served() -> bool:
        try:
            return bool(own.s3.get_object(Bucket="models", Key="through")["Body"].read() == b"thick and thin")
        except BotoCoreError:
            return False

    until(served)
    assert gone(server.pid)


def test_a_service_ends_with_the_process_it_was_started_for(tmp_path: Path) -> None:
    shell = subprocess.Popen(
        ["sh", "-c", f"{COMMAND} local up --state {tmp_path} --with-process $$ && exec sleep 600"],
        stdout=subprocess.PIPE,
        text=True,
    )
    assert shell.stdout is not None
    while "LOCAL_SAGEMAKER_STATE" not in shell.stdout.readline():
        assert shell.poll() is None
    pid = json.loads(run("status", "--json", "--state", str(tmp_path)).stdout)["pid"]
    running = [pid, *(child.pid for child in psutil.Process(pid).children(recursive=True))]
    shell.kill()
    shell.wait()
    until(lambda: all(gone(each) for each in running))
    assert run("status", "--state", str(tmp_path)).returncode == 1
    ended = run("up", "--state", str(tmp_path), "--with-process", str(shell.pid))
    assert ended.returncode == 2
    assert f"there is no process {shell.pid}" in ended.stderr


def test_down_leaves_no_container_of_an_endpoint_that_is_being_created(own: Cloud) -> None:
    own.model("slow-start", STUB_START_SECONDS="60")
    own.config("slow-start", {"ModelName": "slow-start"})
    own.sagemaker.create_endpoint(EndpointName="slow-start", EndpointConfigName="slow-start")
    until(lambda: bool(own.instances("slow-start")) and own.instances("slow-start")[0]["pid"] is not None)
    (starting,) = own.instances("slow-start")
    own.service.down()
    assert gone(starting["pid"])
    own.service.up()
    assert own.sagemaker.describe_endpoint(EndpointName="slow-start")["EndpointStatus"] == "Creating"
    own.delete("slow-start")
