"""`check` and the start refuse the same values of settings that no plan holds, in the same words."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Final

import pytest

import sample_model
from handler.artifacts.external.external_source import fetch_external_artifacts
from handler.batches.batches import Batches
from handler.config.endpoint_config import EndpointConfig
from handler.config.finding import Finding, Severity
from handler.config.loading.config_loader import load
from handler.engine.frontend_args import front_end
from handler.errors import SettingError
from handler.neuron.planning.examination import examine_config
from handler.storage.open_store import open_objects

MODEL: Final = str(sample_model.path())
ON_NXDI: Final = {"ENDPOINT_LINE": "nxdi-0.16", "ENDPOINT_INSTANCE": "ml.trn2.48xlarge"}
STORE: Final = {"ENDPOINT_ARTIFACT_STORE": "s3://bucket/prefix"}
BATCH_STORES: Final = ("nope", "s3://", "https://x/y", f"{__file__}/below")


def errors(environ: dict[str, str]) -> list[Finding]:
    examination = examine_config(load(environ, model=MODEL), build=None)
    return [finding for finding in examination.findings if finding.severity is Severity.ERROR]


@pytest.mark.parametrize("on_miss", ["fail", "wait"])
@pytest.mark.parametrize("line", ["nxdi-0.16", "native-0.29"])
def test_a_start_that_may_not_compile_needs_artifacts(on_miss: str, line: str) -> None:
    environ = {**ON_NXDI, "ENDPOINT_LINE": line, "ENDPOINT_ON_MISS": on_miss}

    def reasons(model: str = MODEL, **more: str) -> list[str]:
        examined = examine_config(load({**environ, **more}, model=model), build=None)
        return [each.why for each in examined.findings if each.setting == "ENDPOINT_ON_MISS"]

    assert reasons() == ["there is no artifact store, so a start would compile"]
    assert reasons("org/model", **STORE) == ["artifacts of a hub id have no key in the store, so a start would compile"]
    assert reasons(**STORE) == []
    assert reasons(NEURON_COMPILED_ARTIFACTS="/opt/compiled") == reasons(ENDPOINT_ON_MISS="compile") == []
    assert reasons(ENDPOINT_LINE="cpu", ENDPOINT_INSTANCE="") == []


@pytest.mark.parametrize("more", [{}, STORE])
def test_the_text_of_a_signing_key_is_refused_and_never_shown(more: dict[str, str]) -> None:
    """In place of where it is, the obvious mistake. It may stand in a document that the environment overrides, too."""
    environ = {"ENDPOINT_ARTIFACT_SIGNING_KEY": "mysecretkey123456", **more}
    document = {"ENDPOINT_CONFIG": '{"artifact_signing_key": "mysecretkey123456"}'}
    for settings in (environ, {**document, "ENDPOINT_ARTIFACT_SIGNING_KEY": "env:NAME"}):
        with pytest.raises(SettingError, match="does not name a key") as caught:
            load(settings, model=MODEL)
        assert "mysecret" not in caught.value.message


def open_batches(config: EndpointConfig) -> object:
    return Batches(None, config.batch_store or "")  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("environ", "start"),
    [
        *(
            ({"ENDPOINT_ARTIFACT_STORE": value}, lambda config: open_objects(config.artifact_store or ""))
            for value in ("/opt/cache", "s3://", "https://bucket.s3.amazonaws.com/x", "file:///a#b")
        ),
        *(
            ({"ENDPOINT_BATCH_STORE": value}, open_batches)
            for value in ("nope", "s3://", "https://x/y", f"{__file__}/below")
        ),
        *(
            (
                {"ENDPOINT_COMPILED_ARTIFACTS": value, **ON_NXDI},
                lambda config: fetch_external_artifacts(
                    config.compiled_artifacts or "", Path(), config.setting("compiled_artifacts")
                ),
            )
            for value in ("file:///nowhere", "s3://")
        ),
        ({"ENDPOINT_ENABLE_AUTO_TOOL_CHOICE": "true"}, front_end),
        ({"ENDPOINT_TOOL_PARSER_PLUGIN": "/x.py"}, front_end),
        ({"SM_VLLM_REASONING_PARSER_PLUGIN": "/x.py"}, front_end),
    ],
    ids=lambda value: str(value) if isinstance(value, dict) else "",
)
def test_what_the_start_refuses_is_an_error_of_check(
    environ: dict[str, str], start: Callable[[EndpointConfig], object]
) -> None:
    (finding,) = errors(environ)
    with pytest.raises(SettingError) as caught:
        start(load(environ, model=MODEL))
    assert finding.setting == next(iter(environ))
    assert (finding.setting, finding.why, finding.fix) == (
        caught.value.setting,
        caught.value.problem,
        caught.value.fix,
    )


@pytest.mark.parametrize(
    "environ",
    [
        {"ENDPOINT_COMPILED_ARTIFACTS": "file:///nowhere", "ENDPOINT_ARTIFACT_STORE": "/opt/cache"},
        {"ENDPOINT_BATCH_STORE": "/opt/batches", "ENDPOINT_ARTIFACT_STORE": "file:///opt/cache"},
        {"ENDPOINT_ENGINE": "none", "ENDPOINT_TOOL_PARSER_PLUGIN": "/x.py", "ENDPOINT_ARTIFACT_STORE": "/opt/cache"},
        *({"ENDPOINT_ARTIFACT_SIGNING_KEY": key, **STORE} for key in ("env:NAME", "file:///key", "arn:aws:kms:a:1:k")),
    ],
    ids=lambda value: str(value) if isinstance(value, dict) else "",
)
def test_what_the_start_takes_or_does_not_use_is_none(environ: dict[str, str]) -> None:
    assert errors(environ) == []
