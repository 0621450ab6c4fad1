"""What the default input_fn makes of JSON, whose size a client decides."""

from __future__ import annotations

import pytest
from sagemaker_inference import content_types

from handler.custom_code.default_handler import EngineInferenceHandler
from handler.errors import InvalidBody
from handler.schemas.json_body import MAX_VALUES


def test_an_array_has_any_number_of_numbers_and_a_bounded_number_of_lists() -> None:
    read = EngineInferenceHandler().default_input_fn
    assert read(b"[" + b",".join([b"0.5"] * (MAX_VALUES + 1)) + b"]", content_types.JSON).shape == (MAX_VALUES + 1,)
    assert read(bytearray(b"[[1], [2]]"), content_types.JSON).shape == (2, 1)
    with pytest.raises(InvalidBody, match="lists and objects"):
        read(b"[" + b",".join([b"[]"] * (MAX_VALUES + 1)) + b"]", content_types.JSON)
    assert read(b'["' + b"[" * (3 * MAX_VALUES) + b'"]', content_types.JSON).shape == (1,)
