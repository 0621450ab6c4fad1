"""Measures the cost of the local SageMaker: streamed invocations through it, compared with direct ones.

There is one container, started by `neuron-endpoint local up`. Blocks alternate, and each pair changes their order.
"""

from __future__ import annotations

import asyncio
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import boto3
import click
import uvloop
from botocore.eventstream import EventStreamBuffer

from benchmarks.lib.contestant import SAMPLE_MODEL
from benchmarks.lib.http_client import Connection

COMMAND = Path(sys.executable).with_name("neuron-endpoint")
ENDPOINT = "bench"
TOKENS = 64
SETTINGS = {"SM_VLLM_MAX_MODEL_LEN": "1024", "SM_VLLM_MAX_NUM_SEQS": "64", "SM_VLLM_ENFORCE_EAGER": "true"}


@dataclass(frozen=True, slots=True)
class Side:
    """One of the two ways to the container.

    :ivar framed: whether its replies are event streams.
    """

    port: int
    path: str
    framed: bool

    async def block(self, concurrency: int, requests: int) -> float:
        """Returns tokens per second. Every reply is checked for completeness after the clock has stopped."""
        connections = [await Connection.open("127.0.0.1", self.port) for _ in range(concurrency)]
        numbers = iter(range(requests))
        bodies: list[bytes] = []

        async def slot(connection: Connection) -> None:
            for number in numbers:
                if not connection.usable:
                    connection = await Connection.open("127.0.0.1", self.port)
                reply = await connection.post(self.path, body(number))
                if reply.status != 200:
                    raise click.ClickException(f"{self.path} was answered {reply.status}: {reply.body[:300]!r}")
                bodies.append(reply.body)
            connection.close()

        began = time.monotonic()
        await asyncio.gather(*(slot(connection) for connection in connections))
        seconds = time.monotonic() - began
        return sum(self.tokens(reply) for reply in bodies) / seconds

    def tokens(self, reply: bytes) -> int:
        if self.framed:
            buffer = EventStreamBuffer()
            buffer.add_data(reply)
            reply = b"".join(message.payload for message in buffer)
        if not reply.rstrip().endswith(b"data: [DONE]"):
            raise click.ClickException(f"a reply is not whole: it ends with {reply[-200:]!r}")
        usage: int = json.loads(reply.split(b"data: ")[-2])["usage"]["completion_tokens"]
        return usage


def body(number: int) -> bytes:
    document = {
        "messages": [{"role": "user", "content": f"{number}: what does /ping mean?"}],
        "max_tokens": TOKENS,
        "ignore_eos": True,
        "temperature": 0,
        "stream": True,
        "stream_options": {"include_usage": True},
    }
    return json.dumps(document).encode()


@contextmanager
def service(cut_parts: str) -> Iterator[tuple[Side, Side]]:
    """Starts a new local SageMaker with one instance of the sample model. Yields both ways to it."""
    with tempfile.TemporaryDirectory(prefix="bench-") as state:
        own = ("--with-process", str(os.getpid()))
        output = local("up", "--state", state, "--cut-parts", cut_parts, "--env", "HF_HUB_OFFLINE=1", *own)
        try:
            exports = dict(line.removeprefix("export ").split("=", 1) for line in output.splitlines())
            create(exports)
            status = json.loads(local("status", "--json", "--state", state))
            address = status["endpoints"][ENDPOINT][0]["address"]
            through = Side(
                urlsplit(status["url"]).port or 0, f"/endpoints/{ENDPOINT}/invocations-response-stream", True
            )
            yield through, Side(int(address.rpartition(":")[2]), "/invocations", False)
        finally:
            local("down", "--state", state)


def local(*arguments: str) -> str:
    done = subprocess.run([COMMAND, "local", *arguments], capture_output=True, text=True, check=False, env=os.environ)
    if done.returncode:
        raise click.ClickException(done.stderr)
    return done.stdout


def create(exports: dict[str, str]) -> None:
    keys: dict[str, Any] = {
        "region_name": exports["AWS_DEFAULT_REGION"],
        "aws_access_key_id": exports["AWS_ACCESS_KEY_ID"],
        "aws_secret_access_key": exports["AWS_SECRET_ACCESS_KEY"],
    }
    s3 = boto3.client("s3", endpoint_url=exports["AWS_ENDPOINT_URL_S3"], **keys)
    s3.create_bucket(Bucket="models")
    for file in SAMPLE_MODEL.iterdir():
        s3.upload_file(str(file), "models", f"sample/{file.name}")
    sagemaker: Any = boto3.client("sagemaker", endpoint_url=exports["AWS_ENDPOINT_URL_SAGEMAKER"], **keys)
    source = {"S3Uri": "s3://models/sample/", "S3DataType": "S3Prefix", "CompressionType": "None"}
    container = {"Image": ENDPOINT, "ModelDataSource": {"S3DataSource": source}, "Environment": SETTINGS}
    sagemaker.create_model(ModelName=ENDPOINT, PrimaryContainer=container)
    variant = {"VariantName": "v", "ModelName": ENDPOINT, "InstanceType": "ml.inf2.xlarge", "InitialInstanceCount": 1}
    sagemaker.create_endpoint_config(EndpointConfigName=ENDPOINT, ProductionVariants=[variant])
    sagemaker.create_endpoint(EndpointName=ENDPOINT, EndpointConfigName=ENDPOINT)
    soon = {"Delay": 1, "MaxAttempts": 600}
    sagemaker.get_waiter("endpoint_in_service").wait(EndpointName=ENDPOINT, WaiterConfig=soon)


@click.command()
@click.option("--pairs", default=6, show_default=True, type=click.IntRange(1))
@click.option("--concurrency", default=64, show_default=True, type=click.IntRange(1))
@click.option("--requests", default=256, show_default=True, type=click.IntRange(1), help="Of each block.")
@click.option("--cut-parts", default="as-they-arrive", show_default=True, help="As `local up` takes it.")
def gateway(pairs: int, concurrency: int, requests: int, cut_parts: str) -> None:
    """Compare streamed invocations through the local SageMaker with direct ones."""
    ratios = []
    with service(cut_parts) as (through, direct), asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:

        def rate(side: Side) -> float:
            return runner.run(side.block(concurrency, requests))

        rate(direct), rate(through)
        for pair in range(pairs):
            first, second = (direct, through) if pair % 2 else (through, direct)
            rates = {first: rate(first), second: rate(second)}
            ratios.append(rates[through] / rates[direct])
            click.echo(f"{rates[direct]:8.0f} tokens/s direct {rates[through]:8.0f} through it   {ratios[-1]:.3f}")
    click.echo(f"median {statistics.median(ratios):.3f} of {pairs} pairs, parts cut {cut_parts}")
