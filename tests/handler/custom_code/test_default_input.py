"""What the default input_fn makes of a body, whose size a client decides."""

from __future__ import annotations

import json
import math
from io import BytesIO
from typing import Any

import numpy
import pytest
from sagemaker_inference import content_types

from handler.custom_code import array_limits
from handler.custom_code.default_handler import EngineInferenceHandler
from handler.custom_code.engine_model import EngineModel
from handler.custom_code.hook_context import HookContext
from handler.custom_code.lmi_objects import LmiInput
from handler.errors import InvalidBody
from handler.schemas.json_body import MAX_VALUES
from tests.container.scripted_engine import ScriptedEngine


def test_an_array_has_any_number_of_numbers_and_a_bounded_number_of_lists() -> None:
    read = EngineInferenceHandler().default_input_fn
    assert read(b"[" + b",".join([b"0.5"] * (MAX_VALUES + 1)) + b"]", content_types.JSON).shape == (MAX_VALUES + 1,)
    assert read(bytearray(b"[[1], [2]]"), content_types.JSON).shape == (2, 1)
    with pytest.raises(InvalidBody, match="lists and objects"):
        read(b"[" + b",".join([b"[]"] * (MAX_VALUES + 1)) + b"]", content_types.JSON)
    assert read(b'["' + b"[" * (3 * MAX_VALUES) + b'"]', content_types.JSON).shape == (1,)


@pytest.mark.parametrize("body", [b"[1.0, NaN, -Infinity]", "[1.0, NaN, -Infinity]"])
def test_missing_values_of_an_array_are_read_as_the_library_reads_them(body: bytes | str) -> None:
    """`json.dumps` and the SageMaker SDK's JSONSerializer write them."""
    values = EngineInferenceHandler().default_input_fn(body, content_types.JSON)
    numpy.testing.assert_array_equal(values, [1.0, numpy.nan, -numpy.inf])


def test_an_object_has_missing_values_only_where_no_engine_gets_it(engine: ScriptedEngine) -> None:
    read, body = EngineInferenceHandler().default_input_fn, b'{"temperature": Infinity}'
    assert read(body, content_types.JSON, HookContext("", None)) == {"temperature": math.inf}
    with pytest.raises(InvalidBody, match="not valid JSON"):
        read(body, content_types.JSON, HookContext("", EngineModel(engine)))  # type: ignore[arg-type]  # a stand-in


def test_lists_of_different_lengths_are_the_callers_error() -> None:
    with pytest.raises(InvalidBody, match="lengths differ"):
        EngineInferenceHandler().default_input_fn(b"[[1], [2, 3]]", content_types.JSON)


def npz(values: int) -> bytes:
    """An archive of a sparse matrix that is all zeros."""
    written = BytesIO()
    zeros = numpy.zeros(values, numpy.int8)
    numpy.savez_compressed(written, format=b"coo", shape=(1, values), row=zeros, col=zeros, data=zeros)
    return written.getvalue()


LONG = "x" * 1000


@pytest.mark.parametrize(
    ("kind", "body"),
    [
        (content_types.JSON, json.dumps([LONG, *[""] * 100])),
        (content_types.JSON, json.dumps([[LONG], *[[1]] * 100])),
        (content_types.JSON, json.dumps(["", *[1] * 1000])),
        (content_types.CSV, LONG + "\na" * 100),
        (content_types.NPZ, npz(100_000)),
    ],
)
def test_an_array_that_is_much_larger_than_its_body_is_refused(
    kind: str, body: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    read = EngineInferenceHandler().default_input_fn
    read(body, kind)
    monkeypatch.setattr(array_limits, "MOST_BYTES", 100_000)
    with pytest.raises(InvalidBody, match="as an array it may take"):
        read(body, kind)
    if kind == content_types.NPZ:
        with pytest.raises(InvalidBody, match="as an array it may take"):
            LmiInput(body=body).get_as_npz()


def test_an_array_of_numbers_or_objects_is_no_larger_than_its_body(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(array_limits, "MOST_BYTES", 100_000)
    read = EngineInferenceHandler().default_input_fn
    assert read(json.dumps([1] * 50_000), content_types.JSON).shape == (50_000,)
    assert read(json.dumps([{"text": LONG}] * 100), content_types.JSON).shape == (100,)
    assert read(json.dumps([LONG, None] * 100), content_types.JSON).shape == (200,)
