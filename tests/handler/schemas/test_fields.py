from __future__ import annotations

import difflib
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from handler.errors import ClientError, InvalidField, UnknownField
from handler.schemas.openai.chat import ChatFields
from handler.schemas.openai.completion import CompletionFields
from handler.schemas.openai.sampling_fields import SamplingFields, StreamOptions, convert, sampling
from handler.schemas.request_fields import MAX_UNKNOWN
from handler.schemas.tgi_lmi.inputs_fields import Parameters

TOO_BIG = 10**400


@pytest.mark.parametrize(
    ("name", "good", "bad"),
    [
        ("max_tokens", [1, 2**63 - 1, None], [0, -1, 1.5, 0.0, 1e300, True, "5", 2**63, [1]]),
        ("min_tokens", [0, 5, None], [-1, "1"]),
        ("temperature", [0, 0.7, 2, 5, None], [-0.1, "hot", True, TOO_BIG]),
        ("top_p", [0.001, 1, None], [0, 1.01, -1]),
        ("top_k", [-1, 0, 50, None], [-2, 1.5, 2**31]),
        ("min_p", [0, 0.5, 1, None], [-0.1, 1.1]),
        ("repetition_penalty", [0.1, 2, None], [0, -1]),
        ("frequency_penalty", [-2, 0, 2, None], [-2.1, 2.1]),
        ("presence_penalty", [-2, 0, 2, None], [-2.1, 2.1]),
        ("seed", [-(2**63), 0, 2**63 - 1, None], [2**63, -(2**63) - 1, 1.5, "1"]),
        ("stop", ["x", ["x", "y"], [], None], [1, [1], {"a": 1}]),
        ("stop_token_ids", [[0, 5], [], None], [[-1], [-1.0], ["a"], [1.5], [2.0, "a"], [True, 2.0], [[2.0]], 5, 2.0]),
        ("n", [1, None], [0, -1, "1"]),
        ("stream", [True, False, None], ["true", 1, 0, 1.0]),
        ("stream_options", [{}, {"include_usage": True}, None], [{"include_usage": 1}, [], True]),
        ("model", ["x", "", None], [1, ["x"]]),
        ("ignore_eos", [True, False], [1, "no"]),
    ],
)
def test_types_and_bounds(name: str, good: list[object], bad: list[object]) -> None:
    for value in good:
        converted = msgspec.to_builtins(convert({name: value}, SamplingFields))[name]
        whole = {**msgspec.to_builtins(StreamOptions()), **value} if isinstance(value, dict) else value
        assert converted in (value, whole)
    for value in bad:
        with pytest.raises(InvalidField) as caught:
            convert({name: value}, SamplingFields)
        assert (caught.value.param or "").startswith(name), f"{value!r} blames {caught.value.param}"
        assert caught.value.status == 400
        assert "msgspec" not in caught.value.message
        assert "$" not in caught.value.message


def test_an_integer_may_be_written_with_a_point() -> None:
    fields = convert({"max_tokens": 16.0, "n": 1.0, "top_k": -1.0, "seed": 7.0, "top_p": 1.0}, SamplingFields)
    assert [repr(value) for value in (fields.max_tokens, fields.n, fields.top_k, fields.seed)] == ["16", "1", "-1", "7"]
    assert convert({"max_new_tokens": 16.0}, Parameters, "parameters.").max_new_tokens == 16
    assert repr(convert({"stop_token_ids": [2.0, 3]}, SamplingFields).stop_token_ids) == "[2, 3]"


@pytest.mark.parametrize(
    ("slip", "meant"),
    [
        ("max_token", "max_tokens"),
        ("temprature", "temperature"),
        ("streams", "stream"),
        ("stop_tokens_ids", "stop_token_ids"),
    ],
)
def test_a_near_miss_names_the_field_that_was_meant(slip: str, meant: str) -> None:
    with pytest.raises(UnknownField) as caught:
        convert({"messages": [], slip: 1}, ChatFields)
    assert caught.value.param == slip
    assert f"did you mean '{meant}'" in caught.value.message


def test_a_field_that_is_near_none_is_ignored_as_vllm_ignores_it() -> None:
    assert convert({"messages": [], "frobnicate": {"a": 1}, "": 1, "x" * 10_000: 1}, ChatFields).messages == []


def test_a_body_of_many_unknown_fields_is_not_compared_without_end(monkeypatch: pytest.MonkeyPatch) -> None:
    calls = 0
    compare = difflib.get_close_matches

    def counted(*arguments: Any, **options: Any) -> list[str]:
        nonlocal calls
        calls += 1
        return compare(*arguments, **options)

    monkeypatch.setattr(difflib, "get_close_matches", counted)
    for _ in range(2):  # as in the lines of one body
        try:
            convert({"messages": [], **{f"zq{number}": 1 for number in range(1000)}}, ChatFields)
        except ClientError:
            pass
        assert calls == MAX_UNKNOWN


def test_sampling_takes_over_what_was_given_and_leaves_the_rest_to_the_model() -> None:
    fields = convert({"temperature": 0.5, "stop": "END", "seed": 7, "stop_token_ids": [1, 2]}, SamplingFields)
    chosen = sampling(fields, 9, "max_completion_tokens")
    assert (chosen.temperature, chosen.stop, chosen.seed, chosen.stop_token_ids) == (0.5, ("END",), 7, (1, 2))
    assert (chosen.max_tokens, chosen.max_tokens_field) == (9, "max_completion_tokens")
    own = ("top_p", "top_k", "min_p", "repetition_penalty", "frequency_penalty", "presence_penalty")
    assert {getattr(chosen, name) for name in own} == {None}
    assert sampling(convert({"presence_penalty": 0}, SamplingFields), 9).presence_penalty == 0


@pytest.mark.parametrize(
    ("document", "param", "kind"),
    [
        ({"stop": ["a", ""]}, "stop", InvalidField),
        ({"stop": ""}, "stop", InvalidField),
        ({"min_tokens": 6}, "min_tokens", InvalidField),
        ({"stream_options": {"include_usage": True}}, "stream_options", InvalidField),
        ({"stream": False, "stream_options": {}}, "stream_options", InvalidField),
    ],
)
def test_fields_that_do_not_go_together(document: dict[str, Any], param: str, kind: type[ClientError]) -> None:
    fields = convert(document, SamplingFields)
    with pytest.raises(kind) as caught:
        sampling(fields, 5)
    assert caught.value.param == param


VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.just(TOO_BIG) | st.floats(allow_nan=False) | st.text(max_size=5),
    lambda values: st.lists(values, max_size=2) | st.dictionaries(st.text(max_size=5), values, max_size=2),
    max_leaves=4,
)
KEYS = st.sampled_from(CompletionFields.__struct_fields__) | st.text(max_size=10)


@settings(max_examples=300, deadline=None)
@given(st.dictionaries(KEYS, VALUES, max_size=4))
def test_any_document_converts_or_blames_a_field_of_it(document: dict[str, object]) -> None:
    def attempt(step: Callable[[], object]) -> ClientError | None:
        try:
            step()
        except ClientError as error:
            return error
        return None

    document = {"prompt": "hello", **document}
    error = attempt(lambda: sampling(convert(document, CompletionFields), 5))
    if error is not None:
        assert any((error.param or "").startswith(name) for name in document)
        assert error.status == 400


RACE = """
import sys, threading
import msgspec
from handler.schemas.openai.sampling_fields import convert

sys.setswitchinterval(1e-6)
for round in range(150):
    inner = msgspec.defstruct(f"Inner{round}", [(f"i{n}", int | None, None) for n in range(20)])
    kind = msgspec.defstruct(f"Kind{round}", [(f"f{n}", inner | None, None) for n in range(20)])
    start = threading.Barrier(4)

    def first():
        start.wait()
        convert({"f1": {"i1": 1}}, kind)

    threads = [threading.Thread(target=first) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
print("done")
"""


def test_types_that_threads_meet_at_once_end_no_process() -> None:
    root = Path(__file__).parents[3]
    done = subprocess.run(
        [sys.executable, "-c", RACE],
        env={**os.environ, "PYTHONPATH": str(root)},
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout == "done\n"
