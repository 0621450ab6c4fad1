"""The rows of `config explain`, and that its document gives the same configuration."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path

import pytest
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st

from handler.config.config_findings import config_findings
from handler.config.config_rows import json_value, rows, secrets, to_document, without_secrets
from handler.config.dialects import neuron_variables as neuron
from handler.config.dialects import vllm_names as engine
from handler.config.endpoint_config import EndpointConfig
from handler.config.fields import INT_BOUNDS, ConfigField, fields
from handler.config.secret_values import mask
from handler.config.vllm_argument_table import known
from handler.errors import SettingError
from handler.errors.base import one_line
from handler.json_value import Json
from tests.handler.config.reading import read

TOKEN = "hf_AbCdEfGh1234"


def test_every_setting_has_a_row_with_its_meaning() -> None:
    found = rows(EndpointConfig())
    assert [row.field for row in found] == list(fields())
    assert all(row.doc and row.source == "default" and not row.given for row in found)


def test_a_row_has_the_source_and_the_overridden_values() -> None:
    document = '{"max_num_seqs": 8, "engine_args": {"seed": 3}}'
    config = read({"SM_VLLM_MAX_NUM_SEQS": "4", "ENDPOINT_CONFIG": document})
    by_field = {row.field: row for row in rows(config)}
    row = by_field["max_num_seqs"]
    assert (row.value, row.source, row.given) == (4, "SM_VLLM_MAX_NUM_SEQS", True)
    assert row.overridden == ("8 (max_num_seqs in ENDPOINT_CONFIG)",)
    assert by_field["engine_args.seed"].source == "engine_args.seed in ENDPOINT_CONFIG"


def test_a_token_is_masked_everywhere() -> None:
    document = json.dumps(
        {
            "hf_token": "hf_other5678",
            "neuron_env": {"FOO": f"x{TOKEN}"},
            "engine_args": {"hf_overrides": {"a": [TOKEN]}},
        }
    )
    config = read({"HF_TOKEN": TOKEN, "HF_MODEL_ID": f"org/{TOKEN}", "ENDPOINT_CONFIG": document})
    assert config.hf_token == TOKEN
    text = repr([row.document() for row in rows(config)]) + repr(config_findings(config))
    assert TOKEN not in text
    assert "hf_other5678" not in text, "not the weaker one either"
    assert TOKEN not in to_document(config)


def test_the_notes() -> None:
    environ = {
        "OPTION_MODEL_LOADING_TIMEOUT": "9",
        "SM_VLLM_ADDITIONAL_CONFIG": '{"override-neuron-config": {"a": 1}}',
        "ENDPOINT_MAX_NUM_SEQS": "8",
        "NEURON_COMPILED_ARTIFACTS": "/neff",
    }
    found = {
        note.code: note for note in config_findings(read(environ, {"/neff/neuron_config.json": '{"batch_size": 4}'}))
    }
    assert set(found) == {"no-effect", "hyphenated-override", "artifacts-differ"}
    assert found["hyphenated-override"].setting == "SM_VLLM_ADDITIONAL_CONFIG.override-neuron-config"
    assert "override_neuron_config" in found["hyphenated-override"].fix
    assert found["artifacts-differ"].setting == "ENDPOINT_MAX_NUM_SEQS"
    assert "4" in found["artifacts-differ"].why


def test_the_guides_right_spelling_is_not_noted() -> None:
    for environ in (
        {"SM_VLLM_ADDITIONAL_CONFIG": '{"override_neuron_config": {"a": 1}}'},
        {"ENDPOINT_CONFIG": '{"additional-config": {"override_neuron_config": {"a": 1}}, "neuron-config": {"b": 1}}'},
    ):
        assert config_findings(read(environ)) == ()


TEXT = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0"), min_size=1, max_size=20).map(
    str.strip
)
WORDS = TEXT.filter(lambda text: bool(text) and text[0] not in "\"'[{" and not text.endswith(("'", '"')))
NAMES = st.from_regex(r"[A-Z][A-Z0-9_]{0,12}", fullmatch=True)
JSON: st.SearchStrategy[Json] = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**62), 2**62) | st.floats(allow_nan=False, allow_infinity=False) | TEXT,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(TEXT, inner, max_size=3),
    max_leaves=6,
)
ARGUMENT_VALUES: dict[str, st.SearchStrategy[Json]] = {
    "bool": st.booleans(),
    "int": st.integers(-(2**62), 2**62),
    "float": st.floats(allow_nan=False, allow_infinity=False),
    "str": WORDS,
    "json": st.dictionaries(TEXT, JSON, min_size=1, max_size=3),
}


# What not every other setting goes with, or not every text is.
FIXED: dict[str, object] = {
    "safe_port_range": "8100-8199",
    "network_isolation": False,
    "artifact_signing_key": "env:NAME",
}


def value_of(field: ConfigField) -> st.SearchStrategy[object]:
    if field.name in FIXED:
        return st.just(FIXED[field.name])
    low, high = field.bounds() or INT_BOUNDS
    integers = st.integers(int(low), int(high))
    taken = {*field.metadata.aliases, field.metadata.undecided}
    words = WORDS.filter(lambda text: text.lower() not in taken)
    strategies: dict[str, st.SearchStrategy[object]] = {
        "str": st.sampled_from(field.metadata.choices) if field.metadata.choices else words,
        "bool": st.booleans(),
        "int": integers,
        "float": st.floats(low, high),
        "Path": WORDS.map(Path),
        "tuple[int, ...]": st.lists(st.integers(*map(int, INT_BOUNDS)), min_size=1, max_size=4).map(tuple),
        "tuple[str, ...]": st.lists(WORDS, min_size=1, max_size=3).map(tuple),
        "Mapping[str, str]": st.dictionaries(NAMES, WORDS, min_size=1, max_size=3),
        "Mapping[str, Json]": st.dictionaries(TEXT, JSON, min_size=1, max_size=3),
    }
    return strategies[field.kind]


@st.composite
def arguments(draw: st.DrawFn) -> dict[str, Json]:
    """Engine arguments that have no field; `speculative_config` and `additional_config` without what has one."""
    plain = [
        name for name in known() if name not in fields() and name not in (*engine.OPENED, *engine.SPECULATIVE_FLAGS)
    ]
    found: dict[str, Json] = {}
    for name in draw(st.lists(st.sampled_from(plain), max_size=4, unique=True)):
        argument = known()[name]
        choices = [choice for choice in argument.choices if choice is not None]
        if choices:
            value: Json = draw(st.sampled_from(choices))
            found[name] = [value] if argument.kind == "list" else value
        elif argument.kind == "list":
            found[name] = draw(st.lists(ARGUMENT_VALUES[argument.item], min_size=1, max_size=3))
        else:
            found[name] = draw(ARGUMENT_VALUES[argument.kind])
    if draw(st.booleans()):
        found["additional_config"] = {"max_prompt_length": draw(st.integers(1, 9999))}
    return found


@st.composite
def configurations(draw: st.DrawFn) -> EndpointConfig:
    settable = [field for field in fields().values() if not field.metadata.secret and not field.metadata.merged]
    chosen = draw(st.lists(st.sampled_from(settable), max_size=12, unique_by=lambda field: field.name))
    values = {field.name: draw(value_of(field)) for field in chosen}
    values["engine_args"] = draw(arguments())
    raw = st.from_regex(r"x_[a-z_]{1,12}", fullmatch=True)
    values["neuron_config"] = draw(st.dictionaries(raw, JSON, max_size=3))
    passed = st.sampled_from(neuron.PASSED_ON)
    values["neuron_env"] = draw(st.dictionaries(passed, WORDS, max_size=3))
    config = EndpointConfig(**values)  # type: ignore[arg-type]
    shown = {name: json_value(getattr(config, name)) for name in values}
    assume(without_secrets(shown, secrets(config)) == shown)  # a document leaves what looks like a secret out
    return config


@settings(max_examples=1000, deadline=None, suppress_health_check=[HealthCheck.too_slow, HealthCheck.filter_too_much])
@given(configurations())
@pytest.mark.slow
def test_a_thousand_configurations_survive_explain_file_and_parse(config: EndpointConfig) -> None:
    again = read({"ENDPOINT_CONFIG": "/d.yaml"}, {"/d.yaml": to_document(config)})
    assert dataclasses.replace(again, sources={}) == config


@pytest.mark.parametrize("name", ["max_num_seqs", "port", "hf_token"])
def test_a_value_that_was_set_to_its_default_stays_set(name: str) -> None:
    default = {"max_num_seqs": "4", "port": "8080", "hf_token": TOKEN}[name]
    written = to_document(read({f"ENDPOINT_{name.upper()}": default}))
    assert (name in written) is (name != "hf_token")


@pytest.mark.parametrize(
    ("text", "left"),
    [
        (f"a {TOKEN} b {TOKEN}", "a *** b ***"),
        (f"a {TOKEN[:10]}...", "a ***..."),
        (f"{TOKEN[:9]}{TOKEN}", "******"),
        ("hf_AbC and others", "hf_AbC and others"),
    ],
)
def test_a_token_is_masked_in_full_and_cut_off(text: str, left: str) -> None:
    assert mask(text, [TOKEN]) == left


def test_a_secret_of_several_lines_is_masked_in_a_message_of_one() -> None:
    secret = "-----BEGIN KEY-----\nMIIEabcdefgh\n-----END KEY-----"
    assert mask(one_line(f"'{secret}' is not known"), [secret]) == "'***' is not known"


def test_tokens_of_a_tokenizer_are_no_secrets() -> None:
    overrides = {"classifier_from_token": ["false", "true"], "pad_token": "</s>", "img_context_token": "<image>"}
    template = "{{ true }}</s><image> http://host/?max_tokens=4"
    config = read({"SM_VLLM_HF_OVERRIDES": json.dumps(overrides), "ENDPOINT_CHAT_TEMPLATE": template})
    assert secrets(config) == ()
    assert config.chat_template is not None
    for kept in (*overrides, config.chat_template):
        assert kept in to_document(config)


@pytest.mark.parametrize("value", ["/opt/ml/model/key.json", "true"])
def test_what_occurs_in_other_texts_is_masked_by_its_name_alone(value: str) -> None:
    with pytest.raises(SettingError) as error:
        read({"GOOGLE_APPLICATION_CREDENTIALS": value, "ENDPOINT_CONFIG": "/opt/ml/model/true.yaml"})
    assert "/opt/ml/model/true.yaml" in error.value.message
