"""The first day on AWS: deploys the sample model, makes each kind of call, and prints what differs from the contract.

What no source says (docs/sagemaker.md) is looked at here. docs/on-aws.md describes a run.
"""

from __future__ import annotations

import json
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import click

import sample_model
from sample_model.facts import by_name

FACT = by_name("ping")
QUESTION = {"messages": [{"role": "user", "content": FACT.questions[0]}], "temperature": 0}
STORY = {"prompt": "Question: Tell me a story.\nAnswer:", "max_tokens": 900, "ignore_eos": True, "seed": 1}
JSON, LINES = "application/json", "application/jsonlines"
NAME, SECONDS, POLL = "first-day", 3600.0, 2.0
# The records of a transform job: one empty, one bad.
RECORDS = [json.dumps(QUESTION), "", '{"messages": [', json.dumps(QUESTION)]


@dataclass(slots=True)
class FirstDay:
    """The clients and names of a run.

    :param local: on this machine, with what `neuron-endpoint local up` started.
    :ivar differing: the names of the calls that did not go as expected.
    """

    bucket: str
    image: str | None
    instance: str
    role: str | None
    settings: tuple[str, ...]
    local: bool
    sagemaker: Any
    runtime: Any
    s3: Any
    differing: list[str]

    def command(self, *words: str) -> None:
        here = ["--local"] if self.local else []
        subprocess.run([sys.executable, "-m", "model_packaging", *words, *here], check=True)

    @contextmanager
    def endpoint(self, name: str, *words: str) -> Iterator[str]:
        image = ("--image", self.image) if self.image else ()
        role = ("--role", self.role) if self.role else ()
        sets = [word for one in self.settings for word in ("--set", one)]
        package = f"s3://{self.bucket}/{NAME}/model/"
        try:
            self.command(
                "deploy", name, package, "--instance", self.instance, "--no-alarms", *image, *role, *sets, *words
            )
            yield name
        finally:
            self.command("delete", name, "--yes")

    def compare(self, call: str, expected: object, see: Callable[[], object]) -> None:
        """Prints whether a call goes as expected. An error of SageMaker's is what was seen, too."""
        from botocore.exceptions import BotoCoreError, ClientError

        try:
            seen = see()
        except ClientError as error:
            status = error.response.get("OriginalStatusCode")
            seen = error.response["Error"]["Code"] + (f" {status}" if status is not None else "")
        except BotoCoreError as error:
            seen = type(error).__name__
        if seen == expected:
            click.echo(f"same     {call}")
            return
        self.differing.append(call)
        click.echo(f"DIFFERS  {call}\n           expected {expected!r}\n           seen     {seen!r}")

    def invoke(self, body: object, **more: Any) -> Any:
        data = body if isinstance(body, bytes) else json.dumps(body).encode()
        return self.runtime.invoke_endpoint(EndpointName=NAME, Body=data, **{"ContentType": JSON, **more})

    def read(self, uri: str) -> str | None:
        bucket, _, key = uri.removeprefix("s3://").partition("/")
        listed = self.s3.list_objects_v2(Bucket=bucket, Prefix=key).get("Contents", [])
        if not listed:
            return None
        return str(self.s3.get_object(Bucket=bucket, Key=key)["Body"].read().decode())

    def answered(self, body: object, seconds: int = 900) -> str:
        """Sends an asynchronous request, and returns the text of its output or failure object."""
        asked = {"EndpointName": f"{NAME}-async", "ContentType": JSON, "InvocationTimeoutSeconds": seconds}
        places = self.runtime.invoke_endpoint_async(Body=json.dumps(body).encode(), **asked)
        return str(wait(lambda: self.read(places["OutputLocation"]) or self.read(places["FailureLocation"])))

    def transformed(self, model: str, job: str, source: dict[str, str], **members: Any) -> str:
        """Runs a transform job over `RECORDS`, and returns its output, or its reason."""
        name, folder = f"{NAME}-{job}-{time.time_ns()}", f"s3://{self.bucket}/{NAME}/{job}"
        self.s3.put_object(Bucket=self.bucket, Key=f"{NAME}/{job}/in/a", Body="\n".join(RECORDS).encode())
        uri = {"S3DataType": "S3Prefix", "S3Uri": f"{folder}/in/"}
        self.sagemaker.create_transform_job(
            TransformJobName=name,
            ModelName=model,
            TransformInput={"DataSource": {"S3DataSource": uri}, "SplitType": "Line", **source},
            TransformOutput={"S3OutputPath": f"{folder}/out", "AssembleWith": "Line"},
            TransformResources={"InstanceType": self.instance, "InstanceCount": 1},
            **members,
        )
        described = wait(lambda: ended(self.sagemaker.describe_transform_job(TransformJobName=name)))
        return self.read(f"{folder}/out/a.out") or str(described.get("FailureReason"))


def wait(see: Callable[[], Any]) -> Any:
    end = time.monotonic() + SECONDS
    while (seen := see()) is None:
        if time.monotonic() > end:
            raise click.ClickException(f"nothing came within {SECONDS:g} s")
        time.sleep(POLL)
    return seen


def ended(job: dict[str, Any]) -> dict[str, Any] | None:
    return job if job["TransformJobStatus"] in ("Completed", "Failed", "Stopped") else None


def answer_of(text: str | bytes) -> str:
    return str(json.loads(text)["choices"][0]["message"]["content"])


def real_time(day: FirstDay) -> None:
    def streamed() -> str:
        body = json.dumps({**QUESTION, "stream": True}).encode()
        reply = day.runtime.invoke_endpoint_with_response_stream(EndpointName=NAME, Body=body, ContentType=JSON)
        events = b"".join(event["PayloadPart"]["Bytes"] for event in reply["Body"]).split(b"\n\n")
        data = [json.loads(event[6:]) for event in events if event.startswith(b"data: {")]
        return "".join(each["choices"][0]["delta"].get("content") or "" for each in data)

    def session() -> tuple[bool, str, bool]:
        opened = day.invoke({"requestType": "NEW_SESSION"}, SessionId="NEW_SESSION").get("NewSessionId", "")
        identity = opened.partition(";")[0]
        said = answer_of(day.invoke(QUESTION, SessionId=identity)["Body"].read())
        closed = day.invoke({"requestType": "CLOSE"}, SessionId=identity).get("ClosedSessionId")
        return "; Expires=" in opened, said, closed == identity

    large = json.dumps(QUESTION).encode() + b" " * (7 << 20)
    compare, read = day.compare, lambda **more: answer_of(day.invoke(QUESTION, **more)["Body"].read())
    compare("a whole reply", FACT.answer, read)
    compare("a stream", FACT.answer, streamed)
    compare(
        "custom attributes come back",
        "a=1",
        lambda: day.invoke(QUESTION, CustomAttributes="a=1").get("CustomAttributes"),
    )
    compare("an error of the container", "ModelError 400", lambda: day.invoke({**QUESTION, "temperature": "hot"}))
    compare("no ContentType", "ModelError 415", lambda: day.runtime.invoke_endpoint(EndpointName=NAME, Body=b"{}"))
    compare("a body of 7 MiB", FACT.answer, lambda: answer_of(day.invoke(large)["Body"].read()))
    compare("a session", (True, FACT.answer, True), session)
    compare("an unknown session", "ValidationError", lambda: day.invoke(QUESTION, SessionId="nobody"))


def asynchronous(day: FirstDay) -> None:
    day.compare("an asynchronous reply", FACT.answer, lambda: answer_of(day.answered(QUESTION)))
    day.compare("an asynchronous failure", True, lambda: "(400)" in day.answered({**QUESTION, "temperature": "hot"}))
    # The container ends a request by its own deadline if it gets InvocationTimeoutSeconds. Then the text has this code.
    day.compare(
        "InvocationTimeoutSeconds does not reach the container",
        False,
        lambda: "deadline_exceeded" in day.answered(STORY, 1),
    )


def batch(day: FirstDay, model: str) -> None:
    def kinds(job: str, source: dict[str, str], **members: Any) -> list[str]:
        output = day.transformed(model, job, source, **members)
        return [kind_of(line) for line in output.removesuffix("\n").split("\n")]

    expected = ["answer", "error", "error", "answer"]
    day.compare("a transform job as the container wishes", expected, lambda: kinds("wish", {}))
    zeros = {"BatchStrategy": "MultiRecord", "MaxPayloadInMB": 0, "MaxConcurrentTransforms": 0}
    day.compare("a transform job with zeros", expected, lambda: kinds("zeros", {"ContentType": LINES}, **zeros))


@contextmanager
def batch_model(day: FirstDay, deployed: str) -> Iterator[str]:
    """Makes a model that transform jobs take: the deployed one's prefix is a ModelDataSource, which they refuse."""
    described = day.sagemaker.describe_model(ModelName=deployed)
    container = described["PrimaryContainer"]
    environment = {**container["Environment"], "ENDPOINT_MODEL": f"s3://{day.bucket}/{NAME}/model/"}
    name = f"{NAME}-batch"
    day.sagemaker.create_model(
        ModelName=name,
        PrimaryContainer={"Image": container["Image"], "Environment": environment},
        ExecutionRoleArn=described["ExecutionRoleArn"],
    )
    try:
        yield name
    finally:
        day.sagemaker.delete_model(ModelName=name)


def multi_model(day: FirstDay, model: str) -> None:
    """Whether an instance with Neuron cores takes a multi-model container. Nothing is started."""
    described = day.sagemaker.describe_model(ModelName=model)
    container = {"Image": described["PrimaryContainer"]["Image"], "Mode": "MultiModel"}
    container["ModelDataUrl"] = f"s3://{day.bucket}/{NAME}/model/"
    name = f"{NAME}-many"
    day.sagemaker.create_model(
        ModelName=name, PrimaryContainer=container, ExecutionRoleArn=described["ExecutionRoleArn"]
    )
    variant = {"VariantName": "all", "ModelName": name, "InstanceType": day.instance, "InitialInstanceCount": 1}

    def configured() -> str:
        day.sagemaker.create_endpoint_config(EndpointConfigName=name, ProductionVariants=[variant])
        day.sagemaker.delete_endpoint_config(EndpointConfigName=name)
        return "accepted"

    try:
        day.compare("a multi-model container on these instances", "ValidationException", configured)
    finally:
        day.sagemaker.delete_model(ModelName=name)


def kind_of(line: str) -> str:
    if not line.strip():
        return "blank"
    if not line.startswith("{"):
        return line[:200]
    return "error" if "error" in json.loads(line) else "answer" if FACT.answer in line else line[:200]


@click.command("on-aws")
@click.option("--bucket", required=True, help="A bucket of yours: the model, inputs and outputs go below first-day/.")
@click.option("--image", help="The container's image in ECR; not with --local.")
@click.option("--instance", default="ml.inf2.xlarge", show_default=True)
@click.option("--role", help="The instances' role; default: the only one that SageMaker may take.")
@click.option("--set", "settings", multiple=True, metavar="NAME=VALUE", help="Of the container; may be repeated.")
@click.option("--local", is_flag=True, help="On this machine, with what `neuron-endpoint local up` started.")
def on_aws(
    bucket: str, image: str | None, instance: str, role: str | None, settings: tuple[str, ...], local: bool
) -> None:
    """Deploys the sample model on AWS, makes each kind of call, and prints what differs. Two endpoints, two jobs."""
    import boto3
    from botocore.config import Config

    if local:
        from model_packaging.local_endpoint import use_local

        use_local()
    retried = Config(read_timeout=90, retries={"total_max_attempts": 1})
    clients = boto3.client("sagemaker"), boto3.client("sagemaker-runtime", config=retried), boto3.client("s3")
    small = ("SM_VLLM_MAX_MODEL_LEN=1024", "SM_VLLM_MAX_NUM_SEQS=4", "SM_VLLM_TENSOR_PARALLEL_SIZE=1", *settings)
    day = FirstDay(bucket, image, instance, role, small, local, *clients, differing=[])
    day.command("push", str(sample_model.path()), f"s3://{bucket}/{NAME}/model/")
    with day.endpoint(NAME, "--set", "ENDPOINT_ENABLE_SESSIONS=true"):
        real_time(day)
        config = day.sagemaker.describe_endpoint(EndpointName=NAME)["EndpointConfigName"]
        variants = day.sagemaker.describe_endpoint_config(EndpointConfigName=config)["ProductionVariants"]
        multi_model(day, variants[0]["ModelName"])
        with batch_model(day, variants[0]["ModelName"]) as model:
            batch(day, model)
    with day.endpoint(f"{NAME}-async", "--async-output", f"s3://{bucket}/{NAME}/answers/"):
        asynchronous(day)
    click.echo(f"{len(day.differing)} calls differ." if day.differing else "Nothing differs.")
    sys.exit(1 if day.differing else 0)
