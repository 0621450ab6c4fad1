"""What is read from S3 to know a model, counted on a real server."""

from __future__ import annotations

import threading
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import boto3
import pytest
from botocore.config import Config

from handler.errors import SettingError
from handler.neuron.checkpoint.checkpoint_files import S3Files
from handler.neuron.checkpoint.checkpoint_reader import read_facts
from handler.storage.storage_errors import BucketMissing, StoreUnavailable
from tests.aws_keys import KEYS, AwsKeys
from tests.handler.artifacts.s3_server import ACCESS, REGION, SECRET, s3_server
from tests.handler.neuron.published_models import LLAMA_405B, json_files, safetensors

CONFIG = b'{"model_type": "llama", "hidden_size": 64, "num_hidden_layers": 2, "num_attention_heads": 4}'
SHARD = safetensors({"a": ("BF16", [1000, 1000], 2)})  # 2 MB of weights
HEADER = len(SHARD) - 2_000_000


@dataclass
class Counter:
    """Requests and body bytes that one client made and got."""

    client: Any
    requests: list[str] = field(default_factory=list)
    fetched: int = 0

    def __post_init__(self) -> None:
        self.client.meta.events.register("before-send.s3", self._sent)
        self.client.meta.events.register("after-call.s3.GetObject", self._got)

    def _sent(self, request: Any, **_: object) -> None:
        self.requests.append(request.url.rpartition("/")[2] + request.headers.get("Range", b"").decode())

    def _got(self, parsed: dict[str, Any], **_: object) -> None:
        self.fetched += parsed.get("ContentLength", 0)


@pytest.fixture
def counter(s3_url: str, monkeypatch: pytest.MonkeyPatch) -> Counter:
    monkeypatch.setenv("NO_PROXY", "127.0.0.1")
    return Counter(boto3.client("s3", endpoint_url=s3_url, config=Config(retries={"total_max_attempts": 1}), **KEYS))


def put(s3_url: str, bucket: str, files: dict[str, bytes]) -> str:
    client = boto3.client("s3", endpoint_url=s3_url, **KEYS)
    client.create_bucket(Bucket=bucket)
    for name, content in files.items():
        client.put_object(Bucket=bucket, Key=f"models/v1/{name}", Body=content)
    return f"s3://{bucket}/models/v1"


def test_405b_takes_two_requests_and_no_weights(s3_url: str, counter: Counter) -> None:
    files = json_files(LLAMA_405B)
    shards = {f"model-{number:05}-of-00191.safetensors": b"weights" for number in (1, 2, 191)}
    facts = read_facts(put(s3_url, "big", {**files, **shards}), client=counter.client)
    assert facts is not None
    assert (facts.layers, facts.weight_bytes, facts.local) == (126, 811_706_777_600, False)
    assert counter.requests == ["config.json", "model.safetensors.index.json"]
    assert counter.fetched == sum(map(len, files.values()))


def test_a_single_file_takes_its_header_and_not_a_byte_more(s3_url: str, counter: Counter) -> None:
    facts = read_facts(
        put(s3_url, "single", {"config.json": CONFIG, "model.safetensors": SHARD}), client=counter.client
    )
    assert facts is not None
    assert (facts.parameters, dict(facts.dtypes)) == (1_000_000, {"BF16": 2_000_000})
    assert counter.requests[-2:] == ["model.safetensorsbytes=0-7", f"model.safetensorsbytes=8-{HEADER - 1}"]
    assert counter.fetched - len(CONFIG) - HEADER < 1000  # the rest is S3's answer that there is no index


def test_shards_without_a_total_take_each_header(s3_url: str, counter: Counter) -> None:
    shards = {f"{number}.safetensors": SHARD for number in range(5)}
    facts = read_facts(put(s3_url, "shards", {"config.json": CONFIG, **shards}), client=counter.client)
    assert facts is not None
    assert facts.weight_bytes == 10_000_000
    assert len([request for request in counter.requests if "bytes=" in request]) == 10
    assert counter.fetched < len(CONFIG) + 5 * HEADER + 1000


def test_a_header_that_lies_about_its_length_fetches_no_weights(s3_url: str, counter: Counter) -> None:
    broken = (2**40).to_bytes(8, "little") + bytes(1_000_000)
    model = put(s3_url, "liar", {"config.json": CONFIG, "model.safetensors": broken})
    with pytest.raises(SettingError, match=r"s3://liar/models/v1/model\.safetensors: is not a safetensors file"):
        read_facts(model, client=counter.client)
    assert counter.fetched < 1000


def test_an_empty_file_is_broken_and_not_a_traceback(s3_url: str, counter: Counter) -> None:
    model = put(s3_url, "hollow", {"config.json": CONFIG, "model.safetensors": b""})
    with pytest.raises(SettingError, match="it has 0 bytes"):
        read_facts(model, client=counter.client)


def test_a_missing_model_is_an_error_with_its_location(s3_url: str, counter: Counter) -> None:
    model = put(s3_url, "empty", {})
    with pytest.raises(SettingError, match=r"ENDPOINT_MODEL: s3://empty/models/v1 has no config\.json"):
        read_facts(model, client=counter.client)


def test_no_such_bucket_names_the_role_and_the_region(counter: Counter) -> None:
    with pytest.raises(
        BucketMissing, match=r"no such bucket \(NoSuchBucket\)\. Check its name, the account and AWS_REG"
    ):
        read_facts("s3://never-made/model", client=counter.client)


def test_a_server_that_is_not_there_is_no_setting(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NO_PROXY", "127.0.0.1")
    config = Config(retries={"total_max_attempts": 1}, connect_timeout=1)
    client = boto3.client("s3", endpoint_url="http://127.0.0.1:9", config=config, **KEYS)
    with pytest.raises(StoreUnavailable, match=r"s3://bucket/model\S* cannot be used now"):
        read_facts("s3://bucket/model", client=client)


@pytest.mark.parametrize("uri", ["s3://", "s3://UPPER case/x", "s3://b/model", "s3:///key"])
def test_an_impossible_uri_is_an_error(uri: str, counter: Counter) -> None:
    with pytest.raises((SettingError, BucketMissing), match="bucket"):
        read_facts(uri, client=counter.client)


def test_the_server_of_make_s3_is_read(tmp_path: Path) -> None:
    """It answers a range with 200."""
    for name, content in {"config.json": CONFIG, "model.safetensors": SHARD}.items():
        (tmp_path / "models" / "sample").mkdir(parents=True, exist_ok=True)
        (tmp_path / "models" / "sample" / name).write_bytes(content)
    with s3_server(tmp_path) as port:
        keys: AwsKeys = {"aws_access_key_id": ACCESS, "aws_secret_access_key": SECRET, "region_name": REGION}
        client = boto3.client("s3", endpoint_url=f"http://127.0.0.1:{port}", **keys)
        facts = read_facts("s3://models/sample", client=client)
    assert facts is not None
    assert facts.weight_bytes == 2_000_000


@pytest.mark.parametrize("name", ["config.json", "model.safetensors"])
def test_a_body_that_ends_early_is_no_shorter_file(name: str) -> None:
    """S3 closes the connection in the middle: what came must not pass for the whole."""
    with ThreadingHTTPServer(("127.0.0.1", 0), _Short) as server:
        threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True).start()
        client = boto3.client(
            "s3",
            endpoint_url=f"http://127.0.0.1:{server.server_port}",
            config=Config(retries={"total_max_attempts": 1}),
            **KEYS,
        )
        files = S3Files("s3://bucket/model", client)
        with pytest.raises(StoreUnavailable, match="bytes"):
            files.read(name) if name.endswith("json") else files.read_range(name, 0, 100)
        server.shutdown()


class _Short(BaseHTTPRequestHandler):
    """Says 100 bytes and sends 10."""

    protocol_version = "HTTP/1.1"

    def do_GET(self) -> None:
        self.send_response(206 if self.headers.get("Range") else 200)
        self.send_header("Content-Length", "100")
        self.end_headers()
        self.wfile.write(b"{" + b" " * 8 + b"}")
        self.close_connection = True

    def log_message(self, format: str, *arguments: object) -> None:
        pass
