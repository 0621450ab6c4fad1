"""Compiling ahead: here, by a container that is started and stopped, and as a training job."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any, Never

import pytest

import sample_model
from handler.errors import SettingError
from model_packaging.compilation import local_compile as here
from model_packaging.compilation.compile_job import CompileJob, machines, members
from model_packaging.compilation.compile_job_run import run, stop
from model_packaging.deployment.aws import Aws
from model_packaging.deployment.deployment_errors import CompileEnded
from model_packaging.deployment.watch import PollInterval
from tests.model_packaging import command
from tests.model_packaging.fake_aws import FakeAws, Refusal, Switchboard

ROOT = Path(__file__).parents[2]
SERVE = (sys.executable, str(Path(__file__).with_name("scripted_serve.py")))
ROLE = "arn:aws:iam::123456789012:role/compile"
PACE = PollInterval(poll=0, sleep=lambda seconds: None, clock=lambda: 0.0)


def environ(tmp_path: Path, mode: str) -> dict[str, str]:
    more = {"SCRIPT": mode, "ENDPOINT_MODEL": "m", "STOPPED": str(tmp_path / "stopped"), "PYTHONPATH": str(ROOT)}
    return {**here.child_environment({}, os.environ), **more}


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(here, "POLL", 0.01)


def test_what_was_compiled_is_in_the_store(tmp_path: Path) -> None:
    told: list[str] = []
    store = f"file://{tmp_path}/store"
    endpoint = {"ENDPOINT_ARTIFACT_STORE": f"file://{tmp_path}/other", "ENDPOINT_ON_MISS": "fail"}
    made = here.compile_here({**environ(tmp_path, "compiles"), **endpoint}, store, told.append, SERVE)
    assert [entry.key for entry in made.entries] == ["ab" * 32]
    assert told == ["check configuration", "compile: start engine", "publish artifacts"]
    assert (tmp_path / "stopped").read_text() == "in good order"
    assert here.compile_here(environ(tmp_path, "compiles"), store, told.append, SERVE).entries == ()


@pytest.mark.parametrize(
    ("mode", "cause"),
    [("fails", "no schedule. Lower max_model_len"), ("refuses", "ENDPOINT_BLOCK_SIZE: 7 is no block size")],
)
def test_a_failed_compile_says_why(tmp_path: Path, mode: str, cause: str) -> None:
    with pytest.raises(CompileEnded) as caught:
        here.compile_here(environ(tmp_path, mode), f"file://{tmp_path}/store", lambda text: None, SERVE)
    assert caught.value.diagnosis is not None
    assert cause in caught.value.diagnosis.cause


def test_what_was_compiled_and_not_published_is_a_failure(tmp_path: Path) -> None:
    with pytest.raises(CompileEnded, match="No artifacts were published: s3:PutObject is missing"):
        here.compile_here(environ(tmp_path, "unpublished"), f"file://{tmp_path}/store", lambda text: None, SERVE)


def test_a_start_that_keeps_nothing_in_the_store_is_a_failure(tmp_path: Path) -> None:
    with pytest.raises(CompileEnded, match="a hub id has no entry"):
        here.compile_here(environ(tmp_path, "stores nothing"), f"file://{tmp_path}/store", lambda text: None, SERVE)


def test_the_log_of_a_failed_compile_is_shown_as_text(tmp_path: Path) -> None:
    with pytest.raises(CompileEnded) as caught:
        here.compile_here(environ(tmp_path, "dies"), f"file://{tmp_path}/store", lambda text: None, SERVE)
    assert caught.value.message.endswith("the container ended with status 3\nThe last lines:\n  ERROR x: it ends")


def test_a_jobs_failure_is_told_to_sagemaker(tmp_path: Path) -> None:
    file = tmp_path / "failure"
    for variables, written in (({}, False), ({"TRAINING_JOB_NAME": "x"}, True)):
        with pytest.raises(CompileEnded), here.failure_file(variables, file):
            raise CompileEnded("no schedule", None, ())
        assert file.exists() is written
    assert file.read_text() == "No artifacts were published: no schedule"


def test_settings_of_this_machine_do_not_decide() -> None:
    other = {"ENDPOINT_BLOCK_SIZE": "1", "SM_VLLM_SEED": "1", "TENSOR_PARALLEL_DEGREE": "8", "LORA_ADAPTERS": "a=/x"}
    kept = {"PATH": "/bin", "AWS_PROFILE": "x", "HF_TOKEN": "hf_x"}
    assert here.child_environment({"ENDPOINT_MODEL": "m"}, {**other, **kept}) == {**kept, "ENDPOINT_MODEL": "m"}


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_ctrl_c_and_a_closed_terminal_stop_the_container_in_good_order(tmp_path: Path, number: int) -> None:
    code = (
        "import sys; from model_packaging.cli import status_of\n"
        "from model_packaging.compilation.local_compile import compile_here\n"
        "import os, click\n"
        "def go():\n"
        "    try: compile_here(os.environ, sys.argv[1], lambda text: print(text, flush=True), tuple(sys.argv[2:]))\n"
        "    except KeyboardInterrupt: raise click.exceptions.Abort from None\n"
        "sys.exit(status_of(go))"
    )
    command = [sys.executable, "-c", code, f"file://{tmp_path}/store", *SERVE]
    process = subprocess.Popen(
        command, env=environ(tmp_path, "hangs"), stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    assert process.stdout is not None
    assert process.stdout.readline() == "check configuration\n"
    process.send_signal(number)
    _, errors = process.communicate(timeout=60)
    assert (process.returncode, errors) == (130, "Interrupted.\n")
    assert (tmp_path / "stopped").read_text() == "in good order"


@pytest.mark.parametrize(
    ("on", "instance", "found"),
    [
        ("ml.trn2.48xlarge", None, ("ml.trn2.48xlarge", "ml.trn2.48xlarge")),
        ("ml.inf2.48xlarge", None, ("ml.trn1.32xlarge", "ml.inf2.48xlarge")),
        ("ml.inf2.xlarge", None, ("ml.trn1.2xlarge", "ml.inf2.xlarge")),
        ("ml.trn1.32xlarge", "ml.inf2.24xlarge", ("ml.trn1.32xlarge", "ml.inf2.24xlarge")),
        ("ml.trn1.2xlarge", "ml.inf2.48xlarge", None),
        ("ml.trn1.32xlarge", "ml.trn2.48xlarge", None),
        ("ml.c7i.24xlarge", "ml.trn2.48xlarge", ("ml.c7i.24xlarge", "ml.trn2.48xlarge")),
        ("ml.c7i.24xlarge", "trn2.3xlarge", ("ml.c7i.24xlarge", "trn2.3xlarge")),
        ("r7i.48xlarge", "trn2.48xlarge", ("ml.r7i.48xlarge", "ml.trn2.48xlarge")),
    ],
)
def test_what_is_rented_can_compile_for_the_target(
    on: str, instance: str | None, found: tuple[str, str] | None
) -> None:
    if found is None:
        with pytest.raises(SettingError, match="cannot compile for"):
            machines(on, instance)
    else:
        assert machines(on, instance) == found


@pytest.mark.parametrize(
    ("on", "instance", "setting", "words"),
    [
        ("ml.c7i.24xlarge", None, "--instance", "ml.trn2.48xlarge"),
        ("ml.c7i.24xlarge", "ml.trn2.3xlarge", "--instance", "SageMaker does not host trn2.3xlarge"),
        ("ml.c7i.24xlarge", "ml.inf2.48xlarge", "--on", "only the native lines compile on a CPU"),
        ("ml.c7g.16xlarge", "ml.trn2.48xlarge", "--on", "Arm processor"),
        ("ml.c7i.huge", "ml.trn2.48xlarge", "--on", "not an instance"),
    ],
)
def test_what_a_cpu_instance_cannot_compile_is_said(on: str, instance: str | None, setting: str, words: str) -> None:
    with pytest.raises(SettingError, match=words) as caught:
        machines(on, instance)
    assert caught.value.setting == setting


CPU_JOB = ["compile", "org/model", "--store", "s3://b/s", "--on", "ml.c7i.24xlarge", "--instance", "ml.trn2.48xlarge"]
CPU_JOB += ["--image", "i", "--role", ROLE]


def test_a_cpu_instance_compiles_for_the_native_lines(tmp_path: Path) -> None:
    (tmp_path / "env").write_text('ENDPOINT_CONFIG={"max_num_seqs": 2}\n')
    words = ("--line", "native-0.29", "--dry-run", "--env-file", str(tmp_path / "env"))
    result = command.run(*CPU_JOB, *words)
    assert result.exit_code == 0, result.output
    wanted = json.loads(result.stdout)["create_training_job"]
    assert wanted["ResourceConfig"]["InstanceType"] == "ml.c7i.24xlarge"
    named = ("VLLM_NEURON_CPU_COMPILE", "NEURON_PLATFORM_TARGET_OVERRIDE", "ENDPOINT_INSTANCE")
    assert [wanted["Environment"][name] for name in named] == ["1", "trn2", "ml.trn2.48xlarge"]
    assert wanted["Environment"]["ENDPOINT_CONFIG"] == '{"max_num_seqs": 2}'


@pytest.mark.parametrize(
    ("line", "more", "words"),
    [
        (
            "native-0.29",
            "ENDPOINT_SPECULATION=eagle3\nENDPOINT_SPECULATIVE_MODEL=org/draft\nENDPOINT_NUM_SPECULATIVE_TOKENS=4",
            "has no speculation",
        ),
        ("nxdi-0.16", "", "compiles on Neuron devices only"),
    ],
)
def test_what_a_cpu_compile_cannot_do_is_said_before_it_is_rented(
    tmp_path: Path, line: str, more: str, words: str
) -> None:
    file = tmp_path / "env"
    file.write_text(more)
    result = command.run(*CPU_JOB, "--line", line, "--env-file", file, "--dry-run")
    assert result.exit_code != 0
    assert words in result.output
    assert "create_training_job" not in result.stdout


def job(**more: Any) -> CompileJob:
    on, target = machines("ml.inf2.48xlarge", None)
    given = {
        "image": "123456789012.dkr.ecr.us-east-1.amazonaws.com/neuron-endpoint:0.1",
        "role": ROLE,
        "model": "s3://bucket/models/one/",
        "store": "s3://bucket/store",
        "on": on,
        "target": target,
        "environment": {"SM_VLLM_MAX_NUM_SEQS": "4"},
    }
    return CompileJob(**{**given, **more})


@pytest.fixture
def board() -> Switchboard:
    return Switchboard()


def test_the_job_is_started_once_and_followed_to_its_end(board: Switchboard) -> None:
    aws, told = Aws(session=board.session), list[str]()
    board.fake.log = ["[   9.0 s] compile: start engine: 8.0 s"]
    about = run(aws, job(), told.append, PACE)
    assert about["TrainingJobStatus"] == "Completed"
    assert "[   9.0 s] compile: start engine: 8.0 s" in told
    created = [found for _, operation, found in board.fake.calls if operation == "CreateTrainingJob"]
    assert len(created) == 1
    assert created[0]["Environment"]["NEURON_PLATFORM_TARGET_OVERRIDE"] == "inf2"
    assert created[0]["Environment"]["ENDPOINT_INSTANCE"] == "ml.inf2.48xlarge"
    assert created[0]["Environment"]["NEURON_COMPILE_CACHE_URL"].startswith(created[0]["CheckpointConfig"]["LocalPath"])
    assert created[0]["EnableManagedSpotTraining"] is True
    assert (
        created[0]["StoppingCondition"]["MaxWaitTimeInSeconds"] > created[0]["StoppingCondition"]["MaxRuntimeInSeconds"]
    )


@pytest.mark.parametrize("lost", [False, True])
def test_an_interrupted_follower_finds_its_job_again(lost: bool) -> None:
    board = Switchboard()
    aws = Aws(session=board.session)
    for number in range(6):
        board.fake = FakeAws()
        board.fake.interrupt, board.fake.lost = number, lost
        with pytest.raises(KeyboardInterrupt):
            run(aws, job(), lambda text: None, PACE)
        run(aws, job(), lambda text: None, PACE)
        assert len(board.fake.things["job"]) == 1


def test_a_job_that_was_asked_for_twice_because_an_answer_was_lost_is_followed(
    board: Switchboard, monkeypatch: pytest.MonkeyPatch
) -> None:
    create = board.fake.sagemaker_CreateTrainingJob

    def repeated(**members: Any) -> Never:
        create(**members)
        name = "Training job names must be unique within an AWS account and region"
        raise Refusal("ResourceInUse", f"{name}, and a training job with this name already exists (arn:aws:...)")

    monkeypatch.setattr(board.fake, "sagemaker_CreateTrainingJob", repeated)
    assert run(Aws(session=board.session), job(), lambda text: None, PACE)["TrainingJobStatus"] == "Completed"


def test_what_a_job_has_compiled_is_compiled_again_only_when_asked(board: Switchboard) -> None:
    aws, again = Aws(session=board.session), members(job(), "20200101-000000")
    aws.sagemaker.create_training_job(**again)
    for _ in range(3):
        aws.sagemaker.describe_training_job(TrainingJobName=again["TrainingJobName"])
    run(aws, job(), lambda text: None, PACE)
    assert len(board.fake.things["job"]) == 1
    run(aws, job(), lambda text: None, PACE, again=True)
    assert len(board.fake.things["job"]) == 2


def test_a_failed_job_is_explained(board: Switchboard) -> None:
    board.fake.fails = "AlgorithmError: , exit code: 1"
    board.fake.log = ["NRT_RESOURCE: nope", "more"]
    with pytest.raises(CompileEnded, match="memory is full"):
        run(Aws(session=board.session), job(), lambda text: None, PACE)


def test_a_job_can_be_stopped(board: Switchboard) -> None:
    aws = Aws(session=board.session)
    assert stop(aws, job()) is None
    board.fake.interrupt = 3  # after it was created
    with pytest.raises(KeyboardInterrupt):
        run(aws, job(), lambda text: None, PACE)
    assert stop(aws, job()) == next(iter(board.fake.things["job"]))


@pytest.mark.parametrize(
    ("change", "setting"),
    [
        ({"store": "file:///x"}, "--store"),
        ({"model": "/here/model"}, "MODEL"),
        ({"environment": {"A": "x" * 513}}, "A"),
    ],
)
def test_what_a_job_cannot_do_is_refused(change: dict[str, Any], setting: str) -> None:
    with pytest.raises(SettingError) as caught:
        job(**change)
    assert caught.value.param == setting


def test_names_differ_by_content_and_fit() -> None:
    one = members(job(), "20260131-120000")["TrainingJobName"]
    other = members(job(environment={"SM_VLLM_MAX_NUM_SEQS": "8"}), "20260131-120000")["TrainingJobName"]
    assert one != other
    assert len(one) <= 63


def test_the_command_shows_the_job_first_unless_it_would_fail(s3: Any, bucket: str, tmp_path: Path) -> None:
    model = f"s3://{bucket}/m"
    assert command.run("push", sample_model.path(), model).exit_code == 0
    words = ["compile", model, "--store", "s3://b/s", "--on", "ml.trn1.32xlarge", "--image", "i", "--role", ROLE]
    settings = tmp_path / "settings.env"
    for length, status in (("512", 0), ("-9", 1)):
        settings.write_text(f"SM_VLLM_MAX_MODEL_LEN={length}\nSM_VLLM_MAX_NUM_SEQS=4\n")
        result = command.run(*words, "--env-file", settings, "--dry-run")
        assert result.exit_code == status, result.output
        if status:
            assert "SM_VLLM_MAX_MODEL_LEN" in result.stderr
        else:
            job = json.loads(result.stdout)["create_training_job"]
            assert job["AlgorithmSpecification"]["ContainerArguments"][-1] == model


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("--stop",), "--stop goes with --on."),
        (("--again",), "--again goes with --on."),
        (("--image", "i"), "--image goes with --on."),
        (("--longest", "14400"), "--longest goes with --on."),
        (("--subnet", "subnet-1"), "--subnet goes with --on."),
        (("--region", "eu-west-1"), "--region goes with --on."),
        (("--on", "ml.trn2.48xlarge", "--image", "i", "--cpu"), "--cpu goes without --on."),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, tuple) else "",
)
def test_an_option_without_effect_starts_nothing(
    words: tuple[str, ...], said: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(here, "compile_here", lambda *_: pytest.fail("a compile is started"))
    result = command.run("compile", "s3://b/m", "--store", "s3://b/s", *words)
    assert (result.exit_code, said in result.output) == (2, True), result.output


def test_stopping_prints_json(board: Switchboard, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("model_packaging.deployment.aws.Aws", lambda region: Aws(session=board.session))
    words = ["compile", "s3://b/m", "--store", "s3://b/s", "--on", "ml.trn2.48xlarge", "--image", "i", "--role", ROLE]
    result = command.run(*words, "--stop", "--json")
    assert (result.exit_code, json.loads(result.stdout)) == (0, {"stopped": None})
