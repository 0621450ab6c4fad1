"""Any environment and any document gives a configuration, or errors that name the setting."""

from __future__ import annotations

import contextlib
import gc
import json
from collections.abc import Iterator

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from handler.config.config_findings import config_findings
from handler.config.config_rows import rows, to_document
from handler.config.dialects import container_variables, lmi
from handler.config.dialects import neuron_variables as neuron
from handler.config.endpoint_config import EndpointConfig
from handler.config.fields import fields
from handler.config.loading.config_loader import load
from handler.config.problems import SettingErrors
from handler.config.vllm_argument_table import known


@pytest.fixture(autouse=True)
def no_collection_of_others() -> Iterator[None]:
    """Some documents use up the stack. A collection then would run the finalizers of other tests' objects there."""
    gc.collect()
    gc.disable()
    yield
    gc.enable()


NAMES = st.sampled_from(
    [
        *(f"ENDPOINT_{name.upper()}" for name in fields()),
        *(f"SM_VLLM_{name.upper()}" for name in known()),
        *(f"OPTION_{name.upper()}" for name in lmi.OPTIONS),
        *container_variables.FIELDS,
        *neuron.KNOWN,
        "ENDPOINT_CONFIG",
        "ENDPOINT_MAX_BODY_MB",
        "SM_VLLM_ADDITIONAL_CONFIG",
        "SM_VLLM_LORA_MODULES",
        "SM_VLLM_OVERRIDE_NEURON_CONFIG",
        "SAGEMAKER_BASE_DIR",
        "SAGEMAKER_BIND_TO_PORT",
        "SM_ON_BATCH_SIZE",
    ]
)
PREFIXED = st.builds(
    str.__add__,
    st.sampled_from(["ENDPOINT_", "SM_VLLM_", "SM_ON_", "OPTION_", "NEURON_", "XLA_", "HF_", ""]),
    st.text(),
)
JSONS = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text() | NAMES.map(str.lower), inner, max_size=4),
    max_leaves=8,
)
TEXTS = st.one_of(
    st.text(),
    st.text(st.characters(categories=["Cs", "Nd", "Po"])),
    st.sampled_from(
        ["true", "false", "-1", "0", "1e9", "9" * 5000, "[", "[]", "[1,", "{", "{}", "[" * 5000, "s3://", "8K"]
    ),
    JSONS.map(lambda value: json.dumps(value)),
)
TAGS = ["", "!!int ", "!!float ", "!!bool ", "!!null ", "!!timestamp ", "!!str ", "!!binary ", "!!set ", "!!omap "]
# YAML that JSON cannot say: tags that do not fit, keys that are lists or objects, placeholders not filled in.
ODD_YAML = st.recursive(
    st.builds(str.__add__, st.sampled_from(TAGS), st.sampled_from(["''", "x", "{{ name }}", "1:30", "0b", "-", "_"])),
    lambda inner: st.one_of(
        st.builds("{}[{}, {}]".format, st.sampled_from(TAGS), inner, inner),
        st.builds("{}{{? {} : {}}}".format, st.sampled_from(TAGS), inner, inner),
    ),
    max_leaves=4,
)
KEYS = st.one_of(st.sampled_from([*fields(), *known()]), st.text())
DOCUMENTS = st.one_of(
    st.binary(max_size=200),
    st.text().map(lambda text: text.encode(errors="replace")),
    st.dictionaries(KEYS, JSONS, max_size=5).map(lambda value: json.dumps(value).encode()),
    st.dictionaries(KEYS, TEXTS, max_size=5).map(
        lambda value: "\n".join(f"{key}: {text}" for key, text in value.items()).encode(errors="replace")
    ),
    st.dictionaries(KEYS, TEXTS, max_size=5).map(
        lambda value: "\n".join(f"option.{key}={text}" for key, text in value.items()).encode(errors="replace")
    ),
)


def survives(environ: dict[str, str], body: bytes | None = None) -> None:
    try:
        config = load(environ, fetch=lambda location: body)
    except SettingErrors as error:
        refused = error.errors
    else:
        assert isinstance(config, EndpointConfig)
        json.dumps([row.document() for row in rows(config)]).encode()
        to_document(config).encode()
        config_findings(config)
        return
    assert refused
    assert all(error.setting and error.problem and error.fix for error in refused)


@settings(max_examples=400, deadline=None)
@example({"SM_VLLM_OVERRIDE_NEURON_CONFIG": '{"": true}'})
@given(st.dictionaries(st.one_of(NAMES, PREFIXED), TEXTS, max_size=6))
def test_any_environment(environ: dict[str, str]) -> None:
    survives(environ)


@settings(max_examples=200, deadline=None)
@given(st.sampled_from(["/d.yaml", "/d.toml", "/d.json", "/d", "/d.properties"]), DOCUMENTS)
def test_any_document(name: str, body: bytes) -> None:
    survives({"ENDPOINT_CONFIG": name}, body)
    survives({"NEURON_COMPILED_ARTIFACTS": "/neff"}, body)


@settings(max_examples=300, deadline=None)
@given(st.sampled_from(["model", "max_num_seqs", "served_model_name", "? [a]"]), ODD_YAML)
def test_any_yaml(key: str, value: str) -> None:
    survives({"ENDPOINT_CONFIG": "/d.yaml"}, f"{key}: {value}\n".encode())


@settings(max_examples=100, deadline=None)
@given(st.text(), st.text())
def test_any_model_and_artifacts_on_the_real_file_system(model: str, artifacts: str) -> None:
    with contextlib.suppress(SettingErrors):
        load({"ENDPOINT_MODEL": f"/{model}", "NEURON_COMPILED_ARTIFACTS": f"./{artifacts}"})


@pytest.mark.parametrize(
    "body", [b"a: " + b"[" * 1500, b"[" * 20_000, b"{" * 1500, b"&a [*a]", b"\xef\xbb\xbfmodel: x"]
)
@pytest.mark.parametrize("name", ["/d.yaml", "/d.json", "/d.toml", "/d"])
def test_known_traps_of_parsers(name: str, body: bytes) -> None:
    survives({"ENDPOINT_CONFIG": name}, body)
