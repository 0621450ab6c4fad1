"""A new user's way without AWS: up, push, deploy, invoke, bench, logs, delete, down. Real processes, no engine."""

from __future__ import annotations

import json
import os
import re
import shlex
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

import sample_model
from tests.model_packaging.command import run
from tests.model_packaging.test_terminal import on_terminal

pytestmark = pytest.mark.slow

ROOT = Path(__file__).parents[2]
CONTAINER = f"{sys.executable} {Path(__file__).with_name('scripted_endpoint.py')}"
ANSWER = "It answers 200 when the engine does, süß."
SETTINGS = ("--set", "SM_VLLM_MAX_NUM_SEQS=4", "--set", "SM_VLLM_MAX_MODEL_LEN=512", "--poll", "0.2")
PACKAGE = "s3://models/sample/"


class Shell:
    """A terminal of a user who has no AWS account."""

    def __init__(self, directory: Path) -> None:
        kept = {name: value for name, value in os.environ.items() if not name.startswith("AWS_")}
        self.environ = {
            **kept,
            "LOCAL_SAGEMAKER_STATE": str(directory / "state"),
            "PYTHONPATH": str(ROOT),
            "COLUMNS": "120",
        }

    def run(self, *words: str, status: int = 0) -> subprocess.CompletedProcess[str]:
        command = [sys.executable, "-m", "model_packaging", *words]
        done = subprocess.run(command, env=self.environ, cwd=ROOT, capture_output=True, text=True, timeout=120)
        assert done.returncode == status, f"{words}: {done.returncode}\n{done.stdout}\n{done.stderr}"
        assert "Traceback" not in done.stderr
        return done


@pytest.fixture(scope="module")
def shell(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Shell]:
    shell = Shell(tmp_path_factory.mktemp("local"))
    shell.run("invoke", "--local", "chat", "x", status=3)  # before anything is up
    quick = ("--ping-every", "0.2", "--speed", "20", "--with-process", str(os.getpid()))
    up = ("local", "up", "--bucket", "models", "--image", f"local={CONTAINER}", *quick)
    shell.run(*up)
    assert "Its exports: neuron-endpoint local env" in shell.run(*up, status=1).stderr
    assert "No container of chat" in shell.run("logs", "--local", "chat", status=1).stderr
    shell.run("push", "--local", str(sample_model.path()), PACKAGE)
    yield shell
    shell.run("local", "down")


def test_from_a_package_to_an_answer_and_back_to_nothing(shell: Shell) -> None:
    deployed = shell.run("deploy", "--local", "chat", PACKAGE, *SETTINGS)
    assert "endpoint chat: InService" in deployed.stderr
    assert "neuron-endpoint invoke --local chat" in deployed.stdout
    assert shell.run("invoke", "--local", "chat", "What does /ping mean?").stdout == f"{ANSWER}\n"
    assert shell.run("invoke", "--local", "chat", "What?", "--no-stream").stdout == f"{ANSWER}\n"
    refused = shell.run("invoke", "--local", "chat", "What?", "--max-tokens", "5000", status=4)
    assert "error (400): max_tokens is above 1000. Lower it." in refused.stderr
    picture = Path(shell.environ["LOCAL_SAGEMAKER_STATE"], "bench.png")
    sweep = ("--requests", "6", "--concurrency", "1,2", "--plot", str(picture), "--json")
    one, two = json.loads(shell.run("bench", "--local", "chat", *sweep).stdout)["runs"]
    assert [(run["concurrency"], run["requests"], run["failed"]) for run in (one, two)] == [(1, 6, 0), (2, 6, 0)]
    assert one["time_to_first_token"]["p50"] > 0
    assert one["tokens_per_second"] > 0
    assert picture.read_bytes().startswith(b"\x89PNG")
    bar = on_terminal(120, "bench", "--local", "chat", "--requests", "6", stream="stderr", **shell.environ)
    assert re.search(r"requests, 4 at a time .* 6/6 +\d+ tokens/s, +0:00:00 left", bar), bar
    assert "fetch model: 6 files" in shell.run("logs", "--local", "chat").stdout
    again = shell.run("deploy", "--local", "chat", PACKAGE, *SETTINGS)
    assert "creating" not in again.stderr
    deleted = json.loads(shell.run("delete", "--local", "chat", "--yes", "--json", "--poll", "0.2").stdout)["deleted"]
    kinds = [each.rpartition(" ")[0] for each in deleted]
    assert kinds == ["alarm", "alarm", "endpoint", "endpoint configuration", "model"]
    assert "Nothing carries the tag" in shell.run("delete", "--local", "chat", "--yes", status=1).stdout


def test_a_component_is_updated_and_removed_whole(shell: Shell) -> None:
    deployed = shell.run("deploy", "--local", "part", PACKAGE, *SETTINGS, "--component")
    assert "component part: InService" in deployed.stderr
    asked = ("invoke", "--local", "part", "--component", "part", "What does /ping mean?")
    assert shell.run(*asked).stdout == f"{ANSWER}\n"
    again = shell.run("deploy", "--local", "part", PACKAGE, *SETTINGS, "--component")
    assert "creating" not in again.stderr
    changed = ("--set", "SM_VLLM_MAX_NUM_SEQS=8", *SETTINGS[2:], "--component")
    assert "component part: updating" in shell.run("deploy", "--local", "part", PACKAGE, *changed).stderr
    assert shell.run(*asked).stdout == f"{ANSWER}\n"
    deleted = json.loads(shell.run("delete", "--local", "part", "--yes", "--json", "--poll", "0.2").stdout)["deleted"]
    kinds = {each.rpartition(" ")[0] for each in deleted}
    assert kinds == {"alarm", "inference component", "endpoint", "endpoint configuration", "model"}
    assert "Nothing carries the tag" in shell.run("delete", "--local", "part", "--yes", status=1).stdout


def test_scaling_is_refused_because_nothing_measures_the_load(shell: Shell) -> None:
    scaling = ("--component", "--min", "0", "--max", "2", "--concurrency", "2")
    refused = shell.run("deploy", "--local", "scaled", PACKAGE, *SETTINGS, *scaling, status=2)
    assert "--max: does not go with --local. Nothing on this machine measures the load." in refused.stderr


def test_two_instances_are_updated(shell: Shell) -> None:
    """The rolling update that AWS is asked for is accepted, and all traffic moves at once."""
    shell.run("deploy", "--local", "two", PACKAGE, *SETTINGS, "--instances", "2")
    changed = ("--set", "SM_VLLM_MAX_NUM_SEQS=8", *SETTINGS[2:], "--instances", "2")
    updated = shell.run("deploy", "--local", "two", PACKAGE, *changed)
    assert "endpoint two: updating from two-" in updated.stderr
    assert "endpoint two: InService" in updated.stderr
    shell.run("delete", "--local", "two", "--yes", "--poll", "0.2")


def test_a_start_that_fails_is_explained_by_the_container(shell: Shell) -> None:
    odd = ("--set", "SM_VLLM_MAX_NUM_SEQS=3", "--poll", "0.2", "--no-check")
    failed = shell.run("deploy", "--local", "odd", PACKAGE, *odd, status=1)
    assert "Cause: the container refuses a setting: SM_VLLM_MAX_NUM_SEQS: 3 is odd. Use 4." in failed.stderr
    assert "endpoint odd: InService" in shell.run("deploy", "--local", "odd", PACKAGE, *SETTINGS).stderr
    shell.run("delete", "--local", "odd", "--yes", "--poll", "0.2")


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("--concurrency", "1,x"), "'1,x' has no whole numbers from 1 to 256"),
        (("--concurrency", "0"), "no whole numbers from 1 to 256"),
        (("--concurrency", "1,64"), "--requests 32 never has 64 in flight. Give 256."),
        (("--plot", "bench.txt"), "End it in .png"),
        (("--plot", "/nowhere/bench.png"), "there is no directory /nowhere"),
    ],
)
def test_a_bench_that_cannot_be_told_is_not_begun(words: tuple[str, ...], said: str) -> None:
    result = run("bench", "nowhere", *words)
    assert (result.exit_code, said in result.stderr) == (2, True)


def test_a_bench_with_failures_exits_4(shell: Shell) -> None:
    bench = json.loads(shell.run("bench", "--local", "nowhere", "--requests", "2", "--json", status=4).stdout)
    assert bench["failed"] == 2
    ((said, count),) = bench["errors"].items()
    assert count == 2
    assert said.startswith("ValidationError: ")
    assert "Endpoint nowhere of account 123456789012 not found" in said


def test_an_asynchronous_answer_is_waited_for(shell: Shell) -> None:
    output = ("--async-output", "s3://models/answers/")
    deployed = shell.run("deploy", "--local", "later", PACKAGE, *SETTINGS, *output)
    tried, ended = (shlex.split(line.partition(": neuron-endpoint ")[2]) for line in deployed.stdout.splitlines())
    assert shell.run(*tried).stdout == f"{ANSWER}\n", "the line that deploy prints works as it is"
    assert ended == ["delete", "--local", "later"]
    asked = ("invoke", "--local", "later", "--async", "s3://models/questions/1.json")
    assert shell.run(*asked, "What?", "--wait").stdout == f"{ANSWER}\n"
    again = shell.run(*asked, "--wait", "--json")  # the object that the first one made
    assert json.loads(again.stdout)["choices"][0]["message"]["content"] == ANSWER
    assert "Waiting for s3://models/answers/" in again.stderr
    refused = shell.run(*asked, "What?", "--max-tokens", "5000", "--wait", status=4)
    assert "error (400): max_tokens is above 1000. Lower it." in refused.stderr
    missing = shell.run("invoke", "--local", "later", "--async", "s3://models/no.json", "--wait", status=4)
    assert "s3://models/no.json can't be read" in missing.stderr
    places = json.loads(shell.run(*asked, "What?").stdout)
    assert places["output"].startswith("s3://models/answers/")
    shell.run("delete", "--local", "later", "--yes")


@pytest.mark.parametrize(
    "words",
    [("x", "--wait"), ("--async", "models/1.json", "x"), ("--async", "s3://models/1", "--no-stream")],
)
def test_half_an_asynchronous_request_is_refused(shell: Shell, words: tuple[str, ...]) -> None:
    shell.run("invoke", "--local", "later", *words, status=2)
