"""What the terminal shows: tables, help, errors of S3 and of paths, and what a command refuses, as a user types it."""

from __future__ import annotations

import json
import os
import random
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from io import StringIO
from pathlib import Path
from typing import Any

import boto3
import click
import pytest
from click.testing import CliRunner, Result
from hypothesis import given
from hypothesis import strategies as st
from rich.cells import cell_len
from rich.console import Console

import sample_model
from handler.config.finding import Finding, Severity
from handler.errors import EndpointError, SettingError
from model_packaging.cli import main
from model_packaging.console.output import require_writable
from model_packaging.console.tables import _fitted, plain_table
from model_packaging.deployment.container_log import as_text
from model_packaging.local_endpoint import LocalLog
from tests.aws_keys import KEYS, VARIABLES

ROOT = Path(__file__).parents[2]
MODEL = str(sample_model.path())
TRN2 = ("--instance", "ml.trn2.48xlarge")
BOX = re.compile("[\u2500-\u257f]")


def run(*words: str, **environ: str | None) -> Result:
    return CliRunner().invoke(main, list(words), env={"AWS_DEFAULT_REGION": "us-east-1", **environ})


def on_terminal(columns: int, *words: str, stream: str = "stdout", **environ: str) -> str:
    """What the command writes to a terminal of so many columns."""
    leader, follower = os.openpty()
    variables = {**os.environ, "TERM": "xterm", "COLUMNS": str(columns), "NO_COLOR": "1", **environ}
    command = [sys.executable, "-m", "model_packaging", *words]
    streams: dict[str, Any] = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL, stream: follower}
    process = subprocess.Popen(command, env=variables, cwd=ROOT, **streams)
    os.close(follower)
    written = b""
    with open(leader, "rb", buffering=0) as terminal:
        try:
            while piece := terminal.read(65536):
                written += piece
        except OSError:  # the last writer has closed it
            pass
    process.wait(120)
    return re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", written.decode()).replace("\r\n", "\n")


@pytest.mark.parametrize("columns", [80, 100, 200])
def test_a_table_fits_the_terminal_and_keeps_its_words(columns: int, tmp_path: Path) -> None:
    variables = {"ENDPOINT_ARTIFACT_STORE": "s3://models/artifacts", "ENDPOINT_MAX_NUM_SEQS": "4"}
    settings = tmp_path / "endpoint.env"
    settings.write_text("".join(f"{name}={value}\n" for name, value in variables.items()))
    lines = on_terminal(columns, "config", "explain", "--env-file", str(settings), "org/name").splitlines()
    assert max(map(cell_len, lines)) <= columns
    assert any(BOX.search(line) for line in lines) is (columns > 80), "narrower, a row is one line for each cell"
    for word in (*variables, "s3://models/artifacts", "artifact_store"):
        assert any(word in line for line in lines), f"{word} is broken in\n" + "\n".join(lines)


def test_any_table_fits_any_terminal_with_whole_words() -> None:
    seeded = random.Random(42)

    def text() -> str:
        return " ".join("w" * seeded.randint(1, 30) for _ in range(seeded.randint(1, 8)))

    for _ in range(300):
        columns, width = seeded.randint(1, 6), seeded.randint(80, 160)
        rows = [[text() for _ in range(columns)] for _ in range(4)]
        output = StringIO()
        console = Console(width=width, file=output)
        console.print(_fitted(plain_table([text() for _ in range(columns)], rows), width))
        printed = output.getvalue()
        assert max(map(cell_len, printed.splitlines())) <= width
        assert {word for row in rows for cell in row for word in cell.split()} <= set(re.findall("w+", printed))


@pytest.mark.parametrize(
    "words",
    [
        ("check", "--instance", "ml.inf2.xlarge", MODEL),
        ("plan", *TRN2, MODEL),
        ("config", "explain", MODEL),
        ("migrate", "--instance", "ml.trn2.48xlarge", MODEL),
        ("size", *TRN2, MODEL),
        ("size", "--requests", "2", MODEL),
        ("size", "--log", "trace:chat", *TRN2, MODEL),
        ("store", "ls", "file://{directory}"),
    ],
)
def test_a_table_in_a_pipe_is_plain_and_tab_separated(words: tuple[str, ...], tmp_path: Path) -> None:
    output = run(*(word.format(directory=tmp_path) for word in words), COLUMNS="40").output
    assert "\t" in output
    assert not BOX.search(output)
    rows = [line for line in output.splitlines() if "\t" in line]
    assert not [row for row in rows if len(row.split("\t")) < 2 or row != row.strip("\n")]


def commands(command: click.Command, name: str = "") -> Iterator[tuple[str, click.Command]]:
    if not isinstance(command, click.Group):
        yield name, command
        return
    context = click.Context(command)
    for word in command.list_commands(context):
        found = command.get_command(context, word)
        assert found is not None
        yield from commands(found, f"{name} {word}".strip())


VERB = re.compile(
    "(Act|Add|Allow|Answer|Ask|Assume|Attach|Boot|Check|Claim|Compare|Compile|Compress|Create|Cut|Delete|Deploy|Draw|"
    "Encrypt|End|Generate|Give|Isolate|Keep|Let|Limit|Listen|Make|Migrate|Plan|Poll|Predict|Print|Put|Read|Rent|Replace|"
    "Require|Return|Route|Run|Sample|Save|Say|Scale|Send|Set|Share|Shorten|Show|Size|Start|Stop|Take|Turn|Use|Wait|"
    "Write) "
)


def test_the_help_of_every_option_is_a_sentence() -> None:
    helps = {
        f"{name} {option.opts[-1]}": option.help or ""
        for name, command in commands(main)
        for option in command.params
        if isinstance(option, click.Option)
    }
    assert len(helps) > 150
    wrong = {name: text for name, text in helps.items() if not VERB.match(text) or text[-1:] != "."}
    assert not wrong


@pytest.fixture(scope="module")
def bucket(s3_url: str) -> str:
    boto3.client("s3", endpoint_url=s3_url, **KEYS).create_bucket(Bucket="my-models")
    return s3_url


PLACE = "s3://my-modles/sample"
S3_COMMANDS = [
    ("check", PLACE),
    ("plan", *TRN2, PLACE),
    ("check", "--config", f"{PLACE}/endpoint.yaml", MODEL),
    ("config", "explain", PLACE),
    ("migrate", PLACE),
    ("translate", f"{PLACE}/serving.properties"),
    ("size", *TRN2, PLACE),
    ("kubernetes", "x", PLACE, "--image", "i", *TRN2),
    ("pack", PLACE, "--to", "/nowhere/else"),
    ("push", PLACE, "s3://my-models/there"),
    ("push", MODEL, PLACE),
    ("inspect", PLACE),
    ("verify", PLACE),
    ("store", "ls", PLACE),
    ("store", "verify", PLACE),
    ("store", "rm", PLACE, "--keep", "1"),
    ("compile", MODEL, "--store", PLACE),
    ("deploy", "x", PLACE, "--image", "i", "--role", "arn:aws:iam::123456789012:role/x", *TRN2),
    ("invoke", "x", "--async", f"{PLACE}/question.json", "Hello"),
]
REQUESTS = [("invoke", "x", "Hello"), ("bench", "x", "--requests", "2"), ("accuracy", "x", "--save", "/tmp/never.json")]


@pytest.mark.parametrize("words", S3_COMMANDS, ids=lambda words: " ".join(words)[:40])
def test_a_bucket_that_is_not_there_is_said_everywhere_alike(words: tuple[str, ...], bucket: str) -> None:
    result = run(*words, AWS_ENDPOINT_URL=bucket, **VARIABLES)
    assert result.exit_code in (1, 3), result.output
    output = " ".join(result.output.split())
    assert "there is no such bucket (NoSuchBucket; did you mean my-models?)" in output
    assert "Traceback" not in output


@pytest.mark.parametrize("words", S3_COMMANDS + REQUESTS, ids=lambda words: " ".join(words)[:40])
def test_without_credentials_every_command_says_the_three_ways(
    words: tuple[str, ...], bucket: str, tmp_path: Path
) -> None:
    none = dict.fromkeys(("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_SESSION_TOKEN", "AWS_PROFILE"))
    files = {"AWS_SHARED_CREDENTIALS_FILE": str(tmp_path / "c"), "AWS_CONFIG_FILE": str(tmp_path / "d")}
    result = run(*words, AWS_ENDPOINT_URL=bucket, AWS_EC2_METADATA_DISABLED="true", **none, **files)
    assert result.exit_code in (1, 3), result.output
    output = " ".join(result.output.split())
    for way in ("AWS_PROFILE", "AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY", "a role gives them"):
        assert way in output, output


@pytest.mark.parametrize(
    "words",
    [
        ("check", "no/such/dir"),
        ("check", "./nothing"),
        ("size", *TRN2, "no/such/dir"),
        ("pack", "no/such/dir", "--to", "x"),
        ("push", "no/such/dir", "s3://a/b"),
        ("push", "no-such/dir", "s3://a/b"),
        ("inspect", "no/such/dir"),
        ("verify", "no/such/dir"),
        ("store", "ls", "file:///no/such/dir"),
        ("bench", "x", "--plot", "/no/such/dir/x.png"),
        ("accuracy", "x", "--save", "/no/such/dir/x.json"),
        ("size", "--log", "trace:chat", *TRN2, MODEL, "--plot", "/no/such/dir/x.png"),
    ],
    ids=" ".join,
)
def test_a_directory_that_is_not_there_is_said_everywhere_alike(words: tuple[str, ...]) -> None:
    result = run(*words, HF_HUB_OFFLINE="1")
    assert result.exit_code in (1, 2)
    assert "there is no directory" in result.output, result.output


@pytest.fixture
def open_directory() -> Iterator[Path]:
    """A directory that every user reaches; pytest's own ones are root's."""
    with tempfile.TemporaryDirectory() as directory:
        yield Path(directory)


def test_a_result_that_may_not_be_written_is_refused_before_the_work(open_directory: Path) -> None:
    kept = open_directory / "kept.json"
    kept.write_text("[]")
    kept.chmod(0o444)
    open_directory.chmod(0o555)
    root = os.geteuid() == 0
    if root:  # who may write anywhere
        os.seteuid(65534)
    try:
        for path in (kept, open_directory / "new.json"):
            with pytest.raises(SettingError, match="--save: this user may not write"):
                require_writable("--save", path)
    finally:
        if root:
            os.seteuid(0)
    open_directory.chmod(0o755)
    require_writable("--save", open_directory / "new.json")
    assert [*open_directory.iterdir()] == [kept]
    assert kept.read_text() == "[]"


@pytest.mark.parametrize(
    "words",
    [("pack", MODEL, "--to", "model.zip"), ("push", MODEL, "s3://a/model.zip"), ("pack", MODEL, "--to", "m.tar")],
)
def test_an_archive_that_sagemaker_does_not_unpack_is_refused(words: tuple[str, ...]) -> None:
    result = run(*words)
    assert result.exit_code in (1, 2)
    assert re.search(r"a package is no (zip|tar) file\. Give a folder's name, or one in \.tar\.gz", result.output)
    assert not Path("m.zip").exists()


def test_an_adapter_is_pushed_as_a_model_is(bucket: str, tmp_path: Path) -> None:
    adapter = Path(shutil.copytree(sample_model.adapter_path(), tmp_path / "adapter"))
    pushed = run("push", str(adapter), "s3://my-models/adapter/", AWS_ENDPOINT_URL=bucket, **VARIABLES)
    assert (pushed.exit_code, "Pushed 2 files" in pushed.output) == (0, True), pushed.output
    assert run("verify", "s3://my-models/adapter/", AWS_ENDPOINT_URL=bucket, **VARIABLES).exit_code == 0
    (adapter / "adapter_model.safetensors").write_bytes(b"no header")
    broken = run("push", str(adapter), "s3://my-models/other/", AWS_ENDPOINT_URL=bucket, **VARIABLES)
    assert (broken.exit_code, "the adapter cannot be loaded" in broken.output) == (1, True), broken.output


def event(second: int, message: str, **fields: object) -> str:
    time = f"2026-11-26T10:00:{second:02}.250Z"
    return json.dumps({"time": time, "level": "info", "event": "log", "logger": "x", "message": message, **fields})


def test_each_line_of_a_log_has_its_own_time(tmp_path: Path) -> None:
    file = tmp_path / "chat" / "fleet" / "i-1.log"
    file.parent.mkdir(parents=True)
    steps = [{"step": "warm up", "begin_seconds": 0, "end_seconds": 1, "waited_for": []}]
    lines = [event(1, "one"), "a line of the engine", event(5, "two"), event(6, "", event="timeline", steps=steps)]
    file.write_text("".join(f"{line}\n" for line in lines))
    found = LocalLog("chat", tmp_path).new()
    assert [line.time % 60_000 for line in found] == [1250, 1250, 5250, 6250]
    assert [line.text for line in found[:3]] == ["INFO x: one", "a line of the engine", "INFO x: two"]
    assert json.loads(as_text(lines[3]))["steps"] == steps, "logs --timeline draws it"


def test_a_purge_frees_the_disk(tmp_path: Path) -> None:
    state = tmp_path / "state"
    (state / "logs").mkdir(parents=True)
    (state / "logs" / "large").write_bytes(bytes(1_000_000))
    (state / "mine.txt").write_text("not of the service")
    result = run("local", "down", "--purge", "--state", str(state))
    assert (result.exit_code, [*state.iterdir()]) == (0, [state / "mine.txt"]), result.output
    assert run("local", "down", "--state", str(state)).exit_code == 1


def test_the_set_up_says_what_it_is_at_before_each_long_step() -> None:
    """`make serve` in a new clone, as make would run it."""
    make = ["make", "--dry-run", "--always-make", "serve", "PORT=18080"]
    script = subprocess.run(make, cwd=ROOT, capture_output=True, text=True, timeout=60, check=True).stdout
    steps = re.findall(r'^(?:step|install) "?.{12}', script, re.MULTILINE)
    assert [step.split(" ")[0] for step in steps] == ["step", "install"] * 3 + ["step"]
    assert "unset PORT" in script, "PORT is make's own, and no setting of the endpoint"


@pytest.mark.parametrize(
    ("command", "problem"),
    [
        ("ulimit -f 64; exec {program} pack {model} --to {directory}/out.tar.gz", "File too large"),
        ("exec {program} check {model} > /dev/full", "No space left on device"),
    ],
    ids=["archive", "output"],
)
def test_where_there_is_no_room_one_line_says_so(command: str, problem: str, tmp_path: Path) -> None:
    words = command.format(program=Path(sys.executable).parent / "neuron-endpoint", model=MODEL, directory=tmp_path)
    # Where Python buffers, the rest of the output is written when it ends.
    buffered = {name: value for name, value in os.environ.items() if name != "PYTHONUNBUFFERED"}
    done = subprocess.run(("bash", "-c", words), env=buffered, capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 1
    assert done.stderr == f"Error: {problem}. Free space where this command writes, or write elsewhere.\n"
    assert not list(tmp_path.iterdir()), "nothing half written stays"


@pytest.mark.parametrize("words", ["versions", "--help", "check --help"])
def test_a_reader_that_closes_the_pipe_is_no_failure(words: str) -> None:
    leader, follower = os.pipe()
    os.close(leader)
    command = [sys.executable, "-m", "model_packaging", *words.split()]
    done = subprocess.run(command, stdout=follower, stderr=subprocess.PIPE, cwd=ROOT, timeout=120, check=False)
    os.close(follower)
    assert (done.returncode, done.stderr) == (0, b"")


@pytest.mark.parametrize(
    ("command", "stream", "ending", "said"),
    [
        (("check",), "stdout", "safetensors", "safetensors file"),
        (("pack", "--to", "{directory}/pack.tar.gz"), "stderr", "safetensors", "safetensors file"),
        (("pack", "--to", "{directory}/pack.tar.gz"), "stderr", "pyc", "excluded: weights"),
    ],
    ids=["finding", "error", "list"],
)
def test_a_files_name_neither_steers_the_terminal_nor_begins_a_line(
    command: tuple[str, ...], stream: str, ending: str, said: str, tmp_path: Path
) -> None:
    model = tmp_path / "model"
    shutil.copytree(MODEL, model)
    (model / f"weights\x1b]0;title\x07\nFAKE: it is fine.{ending}").write_bytes(b"xxxxxxxx")
    name, *options = (word.format(directory=tmp_path) for word in command)
    shown = on_terminal(120, name, str(model), *options, stream=stream)
    assert said in shown
    assert not re.search("[\x00-\x08\x0b\x0c\x0e-\x1f\x7f]", shown)  # a bar returns the carriage
    assert not re.search("^FAKE", shown, re.MULTILINE)


@given(st.text())
def test_what_is_said_is_one_line(text: str) -> None:
    said = [EndpointError(text).message, Finding("code", Severity.ERROR, text, text, text).why]
    assert all(len(each.splitlines()) <= 1 for each in said)
    assert {len(each) for each in said} == {len(text)}
