"""The command `neuron-endpoint`, as a user types it."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import boto3
import pytest
from botocore import exceptions
from click.testing import Result

import sample_model
from model_packaging.cli import status_of
from tests.aws_keys import KEYS, VARIABLES
from tests.model_packaging.command import run

ROOT = Path(__file__).parents[2]
MODEL = str(sample_model.path())
TOKEN = "hf_VerySecret1234"
TRN1 = ["--instance", "ml.trn1.32xlarge"]


def env_file(directory: Path, **variables: str) -> str:
    file = directory / "endpoint.env"
    file.write_text("".join(f"{name}={value}\n" for name, value in variables.items()))
    return str(file)


def findings(result: Result) -> dict[str, Any]:
    return {finding["code"]: finding for finding in json.loads(result.stdout)["findings"]}


def test_check_of_what_works(tmp_path: Path) -> None:
    settings = env_file(tmp_path, SM_VLLM_MAX_NUM_SEQS="4", SM_VLLM_MAX_MODEL_LEN="512", ENDPOINT_BLOCK_SIZE="32")
    result = run("check", "--json", *TRN1, "--env-file", settings, MODEL)
    assert result.exit_code == 0, result.output
    document = json.loads(result.stdout)
    assert set(document) == {"findings", "memory", "vllm", "predictions"}
    assert all(set(finding) == {"code", "severity", "setting", "why", "fix"} for finding in document["findings"])
    assert not [finding for finding in document["findings"] if finding["severity"] == "error"]
    memory = document["memory"]
    assert (memory["instance"], memory["max_num_seqs"], memory["max_model_len"]) == ("trn1.32xlarge", 4, 512)


def test_check_says_that_a_line_is_for_plans_only(tmp_path: Path) -> None:
    settings = env_file(tmp_path, ENDPOINT_LINE="fork-0.7.2", ENDPOINT_INSTANCE="ml.trn1.32xlarge")
    output = run("check", "--env-file", settings, MODEL).output
    assert "this container does not start the line" in output
    assert "Nothing here would keep it from starting" not in output


def test_versions_lists_the_packages_and_the_line() -> None:
    document = json.loads(run("versions", "--json").stdout)
    assert document["packages"]["vllm"]
    assert document["line"] == "cpu"
    text = run("versions").output
    assert f"vllm {document['packages']['vllm']}" in text
    assert "the line cpu" in text


def test_versions_lists_the_neuron_packages(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    packages = {
        "vllm": "0.16.0",
        "neuronx-cc": "2.21.1",
        "vllm-neuron": "0.5.0",
        "neuronx-distributed-inference": "0.7.1",
    }
    for name, version in packages.items():
        metadata = tmp_path / f"{name.replace('-', '_')}-{version}.dist-info" / "METADATA"
        metadata.parent.mkdir()
        metadata.write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n")
    monkeypatch.syspath_prepend(tmp_path)
    document = json.loads(run("versions", "--json").stdout)
    assert packages.items() <= document["packages"].items()
    assert document["line"] == "nxdi-0.16"


def test_check_names_every_wrong_setting_and_exits_1(tmp_path: Path) -> None:
    settings = env_file(tmp_path, ENDPOINT_MODL="x", SM_VLLM_PORT="1", NEURON_COMPILED_ARTIFACT="x")
    result = run("check", "--json", "--env-file", settings, MODEL)
    assert result.exit_code == 1
    document = json.loads(result.stdout)
    named = {finding["setting"] for finding in document["findings"] if finding["severity"] == "error"}
    assert named == {"ENDPOINT_MODL", "SM_VLLM_PORT", "NEURON_COMPILED_ARTIFACT"}
    assert document["memory"] is None


def test_checks_table_says_the_same(tmp_path: Path) -> None:
    result = run("check", "--env-file", env_file(tmp_path, ENDPOINT_MODL="x"), MODEL)
    assert result.exit_code == 1
    for words in ("error", "ENDPOINT_MODL", "Did you mean ENDPOINT_MODEL?", "1 error."):
        assert words in result.stdout
    good = run("check", *TRN1, MODEL)
    assert good.exit_code == 0
    assert "Memory of a logical core on trn1.32xlarge" in good.stdout
    assert "Nothing here would keep it from starting." in good.stdout


def test_the_planners_errors_are_errors_of_check(tmp_path: Path) -> None:
    too_many = run(
        "check", "--json", *TRN1, "--env-file", env_file(tmp_path, ENDPOINT_TENSOR_PARALLEL_SIZE="64"), MODEL
    )
    assert too_many.exit_code == 1
    assert any("ENDPOINT_TENSOR_PARALLEL_SIZE" in finding["setting"] for finding in findings(too_many).values())


def test_the_guides_hyphens_are_a_warning(tmp_path: Path) -> None:
    text = '{"override-neuron-config": {"enable_bucketing": false}}'
    result = run("check", "--json", *TRN1, "--env-file", env_file(tmp_path, SM_VLLM_ADDITIONAL_CONFIG=text), MODEL)
    assert result.exit_code == 0
    assert findings(result)["hyphenated-override"]["severity"] == "warning"


def test_settings_without_effect_are_told(tmp_path: Path) -> None:
    result = run("check", "--json", "--env-file", env_file(tmp_path, OPTION_MODEL_LOADING_TIMEOUT="9"), MODEL)
    assert findings(result)["no-effect"]["setting"] == "OPTION_MODEL_LOADING_TIMEOUT"


def test_a_model_that_is_not_there_and_one_that_is_elsewhere(tmp_path: Path) -> None:
    missing = run("check", "--json", str(tmp_path / "none"))
    assert missing.exit_code == 1
    assert str(tmp_path / "none") in missing.stdout
    elsewhere = run("check", "--json", *TRN1, "org/name", HF_HOME=str(tmp_path))
    assert elsewhere.exit_code == 5, "the laptop does not reach the hub, and the instance may"
    assert findings(elsewhere)["not-checked"]["why"].startswith("not checked: org/name")
    here = run("check", "--json", "org/name", HF_HOME=str(tmp_path), HF_HUB_OFFLINE="1")
    assert (here.exit_code, findings(here)["model-unreachable"]["severity"]) == (1, "error")
    for typed in ("s3:/models/x", "S3://models/x", "a/b/c"):
        result = run("check", "--json", *TRN1, typed)
        assert (result.exit_code, "s3://bucket/prefix" in result.stdout) == (1, True), result.stdout
    assert json.loads(elsewhere.stdout)["memory"] is None


def test_plan_prints_what_the_engine_gets(tmp_path: Path) -> None:
    document = tmp_path / "endpoint.yaml"
    document.write_text(
        "max_num_seqs: 4\nmax_model_len: 512\nneuron_config: {async_mode: true}\nengine_args: {seed: 7}\n"
    )
    result = run("plan", "--json", *TRN1, "--line", "nxdi-0.16", "--config", str(document), MODEL)
    assert result.exit_code == 0, result.output
    plan = json.loads(result.stdout)
    assert set(plan) == {"line", "engine_args", "env"}
    assert plan["line"] == "nxdi-0.16"
    assert plan["engine_args"]["seed"] == 7
    assert plan["engine_args"]["additional_config"]["override_neuron_config"]["async_mode"] is True
    table = run("plan", *TRN1, "--config", str(document), MODEL)
    assert "override_neuron_config" in table.stdout


def test_a_plan_that_cannot_be_says_why(tmp_path: Path) -> None:
    settings = env_file(tmp_path, ENDPOINT_TENSOR_PARALLEL_SIZE="64")
    result = run("plan", "--json", *TRN1, "--env-file", settings, MODEL)
    assert result.exit_code == 1
    assert any(finding["severity"] == "error" for finding in findings(result).values())
    assert run("plan", *TRN1, "--env-file", settings, MODEL).exit_code == 1


@pytest.mark.parametrize(
    "words",
    [
        ["check"],
        ["check", "--instance", "ml.trn9.large", MODEL],
        ["check", "--instance", "ml.g5.xlarge", MODEL],
        ["check", "--line", "nxdi", MODEL],
        ["check", "--env-file", "/no/such/file", MODEL],
        ["check", "--config", "/no/such/file", MODEL],
        ["check", "--config", "/a", "--env-file", "/b", MODEL],
        ["check", "--env", "--env-file", "/b", MODEL],
        ["check", "--colour", MODEL],
        ["plan"],
    ],
)
def test_usage(words: list[str]) -> None:
    result = run(*words)
    assert result.exit_code == 2
    assert "Error" in result.stderr


def test_a_line_of_the_env_file_that_docker_refuses(tmp_path: Path) -> None:
    file = tmp_path / "e"
    file.write_text(f"export HF_TOKEN={TOKEN}\n")
    result = run("check", "--env-file", str(file), MODEL)
    assert result.exit_code == 2
    assert "line 1" in result.stderr
    assert TOKEN not in result.output


def test_the_process_s_own_environment_counts_only_when_asked(tmp_path: Path) -> None:
    result = run("check", MODEL, ENDPOINT_MODL="x")
    assert result.exit_code == 0
    assert "Not read, as --env is not given: ENDPOINT_MODL" in result.stderr
    assert run("check", "--env", MODEL, ENDPOINT_MODL="x").exit_code == 1
    bare = tmp_path / "e"
    bare.write_text("SM_VLLM_SEED\n")
    shown = json.loads(run("config", "explain", "--json", "--env-file", str(bare), SM_VLLM_SEED="5").stdout)
    assert {row["field"]: row["value"] for row in shown["settings"]}["engine_args.seed"] == 5


def test_explain_says_where_each_value_is_from() -> None:
    environ = {"SM_VLLM_MAX_NUM_SEQS": "4", "OPTION_PARALLEL_LOADING": "true", "ENDPOINT_CONFIG": '{"max_num_seqs": 8}'}
    result = run("config", "explain", "--env", MODEL, **environ)
    assert result.exit_code == 0
    for words in ("max_num_seqs", "SM_VLLM_MAX_NUM_SEQS", "instead of 8", MODEL, "OPTION_PARALLEL_LOADING"):
        assert words in result.stdout
    assert "async_mode" not in result.stdout
    assert "async_mode" in run("config", "explain", "--all").stdout
    rows = json.loads(run("config", "explain", "--json", "--env", **environ).stdout)["settings"]
    row = next(row for row in rows if row["field"] == "max_num_seqs")
    assert (row["value"], row["source"]) == (4, "SM_VLLM_MAX_NUM_SEQS")


def test_explains_document_is_the_configuration_again(tmp_path: Path) -> None:
    environ = {"SM_VLLM_MAX_NUM_SEQS": "4", "HF_TOKEN": TOKEN, "NEURON_CC_FLAGS": "-O1"}
    written = run("config", "explain", "--yaml", "--env", "org/name", **environ).stdout
    assert TOKEN not in written
    file = tmp_path / "endpoint.yaml"
    file.write_text(written)
    assert run("config", "explain", "--yaml", "--config", str(file)).stdout == written
    assert "max_num_seqs: 4" in written


def test_explain_of_what_cannot_be() -> None:
    for words in (["--json"], []):
        result = run("config", "explain", "--env", *words, ENDPOINT_MODL="x")
        assert result.exit_code == 1
        assert "Did you mean ENDPOINT_MODEL?" in result.stdout


@pytest.mark.parametrize(
    "command", [["check", "--json"], ["check"], ["plan", "--json"], ["plan"], ["config", "explain"]]
)
def test_a_token_is_nowhere(command: list[str], tmp_path: Path) -> None:
    override = json.dumps({"neuron_config": {TOKEN: TOKEN}})
    for variables in (
        {"HF_TOKEN": TOKEN, "SM_VLLM_HF_OVERRIDES": json.dumps({"a": TOKEN}), "NEURON_CC_FLAGS": f"--x={TOKEN}"},
        {"HF_TOKEN": TOKEN, "SM_VLLM_ADDITIONAL_CONFIG": override, "ENDPOINT_LINE": TOKEN, "ENDPOINT_INSTANCE": TOKEN},
        {"HF_TOKEN": TOKEN, "ENDPOINT_PORT": TOKEN, "HUGGING_FACE_HUB_TOKEN": "hf_another999"},
    ):
        result = run(*command, "--env-file", env_file(tmp_path, **variables), MODEL)
        assert result.stdout
        assert TOKEN not in result.output
        assert "hf_another999" not in result.output


@pytest.fixture(scope="module")
def s3_model(s3_url: str) -> tuple[str, dict[str, str]]:
    """The sample model and its settings on a real S3 server, and the environment that finds it."""
    client = boto3.client("s3", endpoint_url=s3_url, **KEYS)
    client.create_bucket(Bucket="cli")
    for file in sample_model.path().iterdir():
        client.upload_file(str(file), "cli", f"m/{file.name}")
    client.put_object(Bucket="cli", Key="m/endpoint.yaml", Body=b"max_num_seqs: 4\n")
    return "s3://cli/m", {"AWS_ENDPOINT_URL": s3_url, **VARIABLES}


def test_check_of_a_model_on_s3_with_its_own_settings(s3_model: tuple[str, dict[str, str]]) -> None:
    uri, environ = s3_model
    result = run("check", "--json", *TRN1, uri, **environ)
    assert result.exit_code == 0, result.output
    assert json.loads(result.stdout)["memory"]["max_num_seqs"] == 4


def test_the_real_process_is_light_and_answers() -> None:
    """An engine, boto3 or rich would each cost more than the whole check may take."""
    script = (
        "import sys; from model_packaging.cli import main\n"
        f"main(['check', '--json', '--instance', 'ml.trn2.48xlarge', {MODEL!r}], standalone_mode=False)"
    )
    wrapped = f"try:\n    exec({script!r})\nexcept SystemExit as end:\n    assert end.code == 0\n"
    tail = "import sys; print('|' + ' '.join(sorted({name.partition('.')[0] for name in sys.modules})))"
    done = subprocess.run(
        [sys.executable, "-c", wrapped + tail], cwd=ROOT, capture_output=True, text=True, timeout=60, check=True
    )
    printed, _, modules = done.stdout.rpartition("|")
    assert json.loads(printed)["memory"]["instance"] == "trn2.48xlarge"
    assert not {"vllm", "torch", "transformers", "boto3", "botocore", "rich"} & set(modules.split())


@pytest.mark.parametrize(
    ("words", "status", "said"),
    [
        (("--version",), 0, "neuron-endpoint "),
        (("chek",), 2, "Did you mean 'check'?"),
        (("xyzzy",), 2, "No such command 'xyzzy'.\n"),
        (("check", "--instance", "ml.foo", MODEL), 2, "'ml.foo' is not an instance with Neuron cores"),
        (
            ("deploy", "x", "s3://a/b", "--image", "i", "--instance", "ml.foo"),
            2,
            "'ml.foo' is not an instance with Neuron",
        ),
    ],
)
def test_a_mistake_has_its_exit_status_and_says_what_was_meant(words: tuple[str, ...], status: int, said: str) -> None:
    result = run(*words, AWS_DEFAULT_REGION="us-east-1")
    assert (result.exit_code, said in result.output) == (status, True), result.output


def test_without_an_engine_nothing_is_checked_and_that_is_said(tmp_path: Path) -> None:
    model = tmp_path / "model"
    (model / "code").mkdir(parents=True)
    words = ["check", "--env-file", env_file(tmp_path, ENDPOINT_ENGINE="none"), "--json", model]
    assert run(*words).exit_code == 1  # nothing would answer
    (model / "code" / "inference.py").write_text("def predict_fn(data, model):\n    return data\n")
    result = run(*words)
    assert findings(result)["not-checked"]["setting"] == "ENDPOINT_ENGINE"
    assert result.exit_code == 5


def test_a_path_that_cannot_be_written_is_named(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    words = ["pack", MODEL, "--to", str(tmp_path / "file" / "below")]
    ended = subprocess.run([sys.executable, "-m", "model_packaging", *words], cwd=ROOT, capture_output=True, text=True)
    assert ended.returncode == 1
    assert str(tmp_path / "file") in ended.stderr
    assert "Traceback" not in ended.stderr


@pytest.mark.parametrize(
    "error",
    [
        exceptions.ConnectTimeoutError(endpoint_url="https://sagemaker"),
        exceptions.ReadTimeoutError(endpoint_url="https://sagemaker"),
        exceptions.ProxyConnectionError(proxy_url="http://proxy"),
        exceptions.SSLError(endpoint_url="https://sagemaker", error=ValueError("no certificate")),
        exceptions.EndpointConnectionError(endpoint_url="https://sagemaker"),
    ],
)
def test_a_service_that_cannot_be_reached_is_one_line(
    error: exceptions.BotoCoreError, capsys: pytest.CaptureFixture[str]
) -> None:
    def fails() -> None:
        raise error

    assert status_of(fails) == 3
    assert capsys.readouterr().err == f"Error: {error}\n"
