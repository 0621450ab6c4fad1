"""Uploads to a real S3 server: what is there is not sent again, what was cut off goes on, nothing is mixed in."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import boto3
import pytest

from handler.artifacts.store.manifest import FileEntry
from handler.storage.storage_errors import ChangedFile
from model_packaging.package.package_item import Item, S3File
from model_packaging.package.package_manifest import PackageManifest
from model_packaging.package.upload import UploadTarget, push
from tests.model_packaging.command import run, told

MIB = 1024 * 1024


def keys(s3: Any, bucket: str) -> set[str]:
    return {entry["Key"] for entry in s3.list_objects_v2(Bucket=bucket).get("Contents", [])}


def test_a_package_is_pushed_once(s3: Any, bucket: str, model: Path) -> None:
    to = f"s3://{bucket}/models/one"
    first = told("push", model, to)
    assert (first["sent"], first["kept"]) == (first["size"], 0)
    assert keys(s3, bucket) == {
        f"models/one/{name}" for name in ("config.json", "tokenizer.json", "model.safetensors", "endpoint-package.json")
    }
    assert run("verify", to).exit_code == 0
    again = told("push", model, to)
    assert (again["sent"], again["kept"]) == (0, again["size"])
    assert told("inspect", to)["model"]["architecture"] == "LlamaForCausalLM"


def test_a_folder_that_the_console_made_is_no_file(s3: Any, bucket: str, model: Path) -> None:
    s3.put_object(Bucket=bucket, Key="models/one/", Body=b"")
    told("push", model, f"s3://{bucket}/models/one/")
    assert run("verify", f"s3://{bucket}/models/one/").exit_code == 0


def test_a_push_that_lost_its_manifest_sends_only_what_is_missing(s3: Any, bucket: str, model: Path) -> None:
    to = f"s3://{bucket}/models/one/"
    told("push", model, to)
    s3.delete_object(Bucket=bucket, Key="models/one/endpoint-package.json")
    s3.delete_object(Bucket=bucket, Key="models/one/tokenizer.json")
    assert told("push", model, to)["sent"] == (model / "tokenizer.json").stat().st_size
    assert run("verify", to).exit_code == 0


def test_equal_size_is_not_equal_content(s3: Any, bucket: str, model: Path) -> None:
    to = f"s3://{bucket}/models/one/"
    told("push", model, to)
    s3.delete_object(Bucket=bucket, Key="models/one/endpoint-package.json")
    content = (model / "tokenizer.json").read_bytes()
    s3.put_object(Bucket=bucket, Key="models/one/tokenizer.json", Body=b"x" * len(content))
    assert told("push", model, to)["sent"] == len(content)
    assert s3.get_object(Bucket=bucket, Key="models/one/tokenizer.json")["Body"].read() == content


def test_another_package_is_not_mixed_in(s3: Any, bucket: str, model: Path) -> None:
    to = f"s3://{bucket}/models/one/"
    s3.put_object(Bucket=bucket, Key="models/one/old.safetensors", Body=b"x")
    refused = run("push", model, to)
    assert refused.exit_code == 1
    assert "old.safetensors" in refused.stderr
    assert f"Would delete {to}old.safetensors." in run("push", model, to, "--replace", "--dry-run").stdout
    assert keys(s3, bucket) == {"models/one/old.safetensors"}
    assert told("push", model, to, "--replace")["deleted"] == 1
    (model / "generation_config.json").write_text('{"changed": 1}')
    assert "another package" in run("push", model, to).stderr
    assert told("push", model, to, "--replace")["sent"] == len('{"changed": 1}')
    assert run("verify", to).exit_code == 0


@pytest.mark.parametrize("beside", ["models/two/endpoint-package.json", "models/store/manifests/neuron/ab12.json"])
def test_replacing_deletes_no_other_package_and_no_store(s3: Any, bucket: str, model: Path, beside: str) -> None:
    s3.put_object(Bucket=bucket, Key=beside, Body=b"x")
    refused = run("push", model, f"s3://{bucket}/models", "--replace")
    assert refused.exit_code == 1
    assert "other packages or a store" in refused.stderr
    assert keys(s3, bucket) == {beside}


def test_replacing_does_not_delete_its_source(s3: Any, bucket: str, model: Path) -> None:
    assert run("push", model, f"s3://{bucket}/models/one").exit_code == 0
    s3.delete_object(Bucket=bucket, Key="models/one/endpoint-package.json")
    before = keys(s3, bucket)
    refused = run("push", f"s3://{bucket}/models/one", f"s3://{bucket}/models", "--replace")
    assert (refused.exit_code, keys(s3, bucket)) == (1, before)
    assert "the model itself" in refused.stderr


def test_a_dry_run_sends_nothing(s3: Any, bucket: str, model: Path) -> None:
    assert "Would upload 3 of 3 files" in run("push", model, f"s3://{bucket}/models/one", "--dry-run").stdout
    assert keys(s3, bucket) == set()


def test_a_token_is_found_before_anything_is_sent(s3: Any, bucket: str, model: Path) -> None:
    (model / "zzz.txt").write_text("hf_" + "aB3dE5gH7j" * 4)
    assert run("push", model, f"s3://{bucket}/models/one").exit_code == 1
    assert keys(s3, bucket) == set()


def test_from_s3_to_s3_and_back(s3: Any, bucket: str, model: Path, tmp_path: Path) -> None:
    for path in model.iterdir():
        s3.upload_file(str(path), bucket, f"hub/tiny/{path.name}")
    s3.put_object(Bucket=bucket, Key="hub/tiny/", Body=b"")
    told("push", f"s3://{bucket}/hub/tiny", f"s3://{bucket}/models/one")
    assert run("verify", f"s3://{bucket}/models/one").exit_code == 0
    told("pack", f"s3://{bucket}/models/one", "--to", tmp_path / "out")
    assert (tmp_path / "out" / "model.safetensors").read_bytes() == (model / "model.safetensors").read_bytes()


def test_verify_finds_a_damaged_object(s3: Any, bucket: str, model: Path) -> None:
    to = f"s3://{bucket}/models/one"
    told("push", model, to)
    s3.put_object(
        Bucket=bucket, Key="models/one/model.safetensors", Body=bytes((model / "model.safetensors").stat().st_size)
    )
    result = run("verify", to)
    assert result.exit_code == 1
    assert "model.safetensors has other content" in result.stdout


def test_an_archive_is_not_pushed(model: Path) -> None:
    refused = run("push", model, "s3://bucket/archives/model.tar.gz")
    assert (refused.exit_code, "aws s3 cp" in refused.stderr) == (1, True)


def test_a_bucket_that_is_not_there_exits_3(s3: Any, model: Path) -> None:
    result = run("push", model, "s3://nowhere-at-all/models/one")
    assert result.exit_code == 3, result.output
    assert "nowhere-at-all" in result.stderr


@pytest.mark.slow
def test_ctrl_c_ends_a_push_cleanly_and_the_next_goes_on(s3: Any, bucket: str, model: Path, s3_url: str) -> None:
    (model / "large.bin").write_bytes(os.urandom(200 * MIB))
    (model / "model.safetensors").rename(model / "model-of-nothing.txt")  # the large file is the weights
    command = [sys.executable, "-m", "model_packaging", "push", str(model), f"s3://{bucket}/models/one", "--json"]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    while process.poll() is None and "Uploads" not in s3.list_multipart_uploads(Bucket=bucket):
        time.sleep(0.02)
    process.send_signal(signal.SIGINT)
    _, errors = process.communicate(timeout=60)
    assert (process.returncode, errors.strip()) == (130, "Interrupted.")
    assert "models/one/endpoint-package.json" not in keys(s3, bucket)
    assert told("push", model, f"s3://{bucket}/models/one")["kept"] > 0
    assert run("verify", f"s3://{bucket}/models/one").exit_code == 0


def test_uploads_are_encrypted_with_the_given_key(s3: Any, bucket: str, model: Path) -> None:
    told("push", model, f"s3://{bucket}/models/one", "--kms-key", "arn:aws:kms:us-east-1:1:key/x")
    head = boto3.client("s3").head_object(Bucket=bucket, Key="models/one/config.json")
    assert head["ServerSideEncryption"] == "aws:kms"


def test_files_under_another_key_are_sent_again(s3: Any, bucket: str, model: Path) -> None:
    to, arn = f"s3://{bucket}/models/one", "arn:aws:kms:us-east-1:123456789012:key/"
    size = told("push", model, to)["size"]
    for key, sent in (
        ("alias/models", size),  # there was none
        (f"{arn}1111", size),
        (f"{arn}1111", 0),
        ("1111", 0),
        (f"{arn}2222", size),
        ("alias/models", 0),  # which key it means is not known
    ):
        assert told("push", model, to, "--kms-key", key)["sent"] == sent, key
    head = s3.head_object(Bucket=bucket, Key="models/one/model.safetensors")
    assert head["SSEKMSKeyId"] == f"{arn}2222"
    s3.delete_object(Bucket=bucket, Key="models/one/endpoint-package.json")
    assert told("push", model, to, "--kms-key", f"{arn}2222")["sent"] == 0
    assert told("push", model, to)["sent"] == 0


def test_an_object_that_is_replaced_meanwhile_is_not_copied(s3: Any, bucket: str) -> None:
    s3.put_object(Bucket=bucket, Key="hub/a.txt", Body=b"x")
    item = Item("a.txt", 1, S3File(s3, bucket, "hub/a.txt", '"the etag of before"'))
    manifest = PackageManifest((FileEntry.of_chunks([b"x"], "a.txt"),))
    with pytest.raises(ChangedFile, match=r"a\.txt"):
        push([item], manifest, UploadTarget(s3, bucket, "models/one/"), lambda done, total: None)
    assert keys(s3, bucket) == {"hub/a.txt"}
