"""Whatever setting holds a secret, in an address or by the name of a variable, no output shows it."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from unittest.mock import patch

import pytest

import sample_model
from handler.config.config_findings import config_findings
from handler.config.config_rows import rows, to_document
from handler.config.dialects import lmi
from handler.config.fields import fields
from handler.config.loading.config_loader import load
from handler.config.secret_values import is_secret
from handler.config.vllm_argument_table import known
from handler.errors import SettingError
from handler.json_value import Json
from model_packaging.deployment.definition.environment import shown
from tests.model_packaging.command import run

PASSWORD = "s3cret@password"
TOKEN = "abcdefgh12345"
DIGITS = "81726354"
ADDRESSES = (f"http://user:{PASSWORD}@host:4317", f"https://host/file?X-Amz-Signature={TOKEN}&part=1")
VARIABLES: tuple[Json, ...] = (
    {"MY_TOKEN": TOKEN, "OTHER": "plain"},
    {"outer": {"redis-password": TOKEN}},
    {"api_keys": [TOKEN]},
    {"proxy": [f"see {ADDRESSES[0]}"]},
    {"headers": {"Authorization": f"Basic {TOKEN}"}, "auth": f"x {TOKEN}", "header": f"X-Mine: Bearer {TOKEN}"},
    {"my_token": int(DIGITS), "outer": [{"api_key": -int(DIGITS)}]},
    dict.fromkeys(("passwd", "redis_pw", "sslPassphrase", "privateKey", "apiKey"), TOKEN),
)
HELD = (*ADDRESSES, *VARIABLES)
NAMES = sorted(
    {f"ENDPOINT_{name.upper()}" for name in fields()}
    | {f"SM_VLLM_{name.upper()}" for name in known()}
    | {f"OPTION_{name.upper()}" for name in lmi.OPTIONS}
    | {"NEURON_CC_FLAGS", "NEURON_RT_LOG_LOCATION", "OTEL_EXPORTER_OTLP_ENDPOINT", "MY_TOKEN"}
)


def outputs(environ: Mapping[str, str], document: bytes | None = None) -> Iterator[str]:
    """What can be said of a configuration, or of why it is none."""
    try:
        config = load(environ, fetch=lambda location: document if location == "s3://a/b.json" else None)
    except SettingError as error:
        yield error.message
        return
    yield json.dumps([row.document() for row in rows(config)])
    yield to_document(config)
    yield repr(config_findings(config))


def public(text: str) -> bool:
    return not any(secret in text for secret in (PASSWORD, "s3cret", TOKEN, DIGITS))


@pytest.mark.parametrize("name", NAMES)
def test_no_setting_shows_a_secret_in_its_value(name: str) -> None:
    for value in HELD:
        text = value if isinstance(value, str) else json.dumps(value)
        for said in outputs({name: text}):
            assert public(said), (name, value)
        assert public(json.dumps(shown({name: text}))), (name, value)


@pytest.mark.parametrize("field", sorted(fields()))
def test_no_key_of_a_document_shows_a_secret_nor_one_that_is_overridden(field: str) -> None:
    for value in HELD if field != "lora_modules" else ADDRESSES:  # its keys are names of adapters
        document = json.dumps({field: value}).encode()
        weaker = {"ENDPOINT_CONFIG": "s3://a/b.json"}
        for environ in (weaker, {**weaker, f"ENDPOINT_{field.upper()}": json.dumps({"MY_TOKEN": "another-one"})}):
            for said in outputs(environ, document):
                assert public(said), (field, value)
                assert "another-one" not in said


def test_the_key_of_a_watermark_is_a_secret() -> None:
    key = {"SM_VLLM_WATERMARK_CONFIG": json.dumps({"key": int(DIGITS), "alpha": 0.5})}
    assert all(map(public, outputs(key)))
    assert public(json.dumps(shown(key)))
    assert not is_secret("Key", "team"), "a tag's"


def test_a_token_in_quotes_is_told_so_and_not_shown() -> None:
    """Docker keeps the quotes of an env file's line."""
    (said,) = outputs({"HF_TOKEN": f'"{TOKEN}"'})
    assert said == "HF_TOKEN: it has quotes around it, which are part of the value here. Remove them."


def test_a_contradiction_shows_neither_value() -> None:
    both = {"OTEL_EXPORTER_OTLP_ENDPOINT": ADDRESSES[0], "SM_VLLM_OTLP_TRACES_ENDPOINT": f"{ADDRESSES[0]}/v1"}
    both |= {"ENDPOINT_ENGINE_ARGS": json.dumps({"otlp_traces_endpoint": ADDRESSES[0]})}
    said = list(outputs(both))
    assert all(map(public, said))
    assert "SM_VLLM_OTLP_TRACES_ENDPOINT" in "".join(said)


@pytest.mark.parametrize(
    "text", [f"hf_token: {TOKEN}", f'hf_token = "{TOKEN}"', f"HF_TOKEN={TOKEN}", f"a: 1\nb: {TOKEN}"]
)
def test_settings_in_place_of_a_path_are_not_shown(text: str) -> None:
    said = list(outputs({"ENDPOINT_CONFIG": text}))
    deploy = ("deploy", "name", "s3://b/m/", "--dry-run", "--instance", "ml.trn2.48xlarge", "--image", "i")
    said += [run("check", "--config", text).output, run(*deploy, "--config", text).output]
    said += [run(*deploy, "--set", f"ENDPOINT_CONFIG={text}").output]
    assert "settings): there is no such file" in said[0]
    assert all(map(public, said)), said


@pytest.mark.parametrize("value", [*ADDRESSES, *map(json.dumps, VARIABLES)])
def test_a_variable_that_holds_a_secret_is_one(value: str) -> None:
    assert is_secret("ANY", value)


def test_a_document_keeps_what_is_no_secret() -> None:
    config = load({"ENDPOINT_NEURON_ENV": json.dumps({"MY_TOKEN": TOKEN, "OTHER": "plain"})}, fetch=lambda _: None)
    assert to_document(config) == "neuron_env:\n  OTHER: plain\n"


@pytest.mark.parametrize(
    "command",
    [
        ["check", "--json"],
        ["check"],
        ["plan", "--json"],
        ["plan"],
        ["plan", "--instance", "ml.trn2.48xlarge"],
        ["config", "explain"],
        ["config", "explain", "--json"],
        ["config", "explain", "--yaml"],
        ["migrate", "--instance", "ml.trn2.48xlarge"],
        ["migrate", "--json", "--instance", "ml.trn2.48xlarge"],
    ],
)
def test_no_command_shows_a_secret(command: list[str], tmp_path: Path) -> None:
    settings = tmp_path / "settings.env"
    environ = {"SM_VLLM_OTLP_TRACES_ENDPOINT": ADDRESSES[0], "NEURON_RT_LOG_LOCATION": ADDRESSES[0]}
    environ |= {"ENDPOINT_NEURON_ENV": json.dumps(VARIABLES[0]), "SM_VLLM_HF_OVERRIDES": json.dumps(VARIABLES[1])}
    settings.write_text("".join(f"{name}={value}\n" for name, value in environ.items()))
    result = run(*command, "--env-file", settings, sample_model.path())
    assert result.exit_code in (0, 1), result.output
    assert len(result.output) > 50
    assert public(result.output)


def test_translate_leaves_an_address_with_a_password_to_the_shell() -> None:
    words = ["translate", "--", "vllm", "serve", "org/m", "--otlp-traces-endpoint", ADDRESSES[0]]
    for form in ([], ["--json"], ["--yaml"]):
        result = run(*words[:1], *form, *words[1:])
        assert result.exit_code == 0, result.output
        assert public(result.output)
        assert form or "\nSM_VLLM_OTLP_TRACES_ENDPOINT\n" in result.output


def test_a_further_node_logs_no_secret() -> None:
    environ = {"SM_VLLM_OTLP_TRACES_ENDPOINT": ADDRESSES[0], "ENDPOINT_MODEL": str(sample_model.path())}
    environ |= {
        "ENDPOINT_NEURON_ENV": json.dumps(VARIABLES[0]),
        "SM_VLLM_NNODES": "2",
        "SM_VLLM_MASTER_ADDR": "10.0.0.1",
    }
    with patch("os.execvp"):
        result = run("node", "--rank", "1", "--dry-run", **environ)
    assert result.output
    assert public(result.output)
