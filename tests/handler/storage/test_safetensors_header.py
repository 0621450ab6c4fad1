from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from handler.storage.safetensors_header import BrokenFile, TensorSizes, read_header, total_sizes
from tests.handler.neuron.published_models import safetensors

FILE = safetensors({"a": ("BF16", [3, 5], 2), "b": ("F8_E4M3", [7], 1), "scalar": ("F32", [], 4)})


def of(content: bytes) -> TensorSizes:
    return total_sizes([read_header(lambda start, length: content[start : start + length])])


def framed(header: object) -> bytes:
    text = header if isinstance(header, bytes) else json.dumps(header).encode()
    return len(text).to_bytes(8, "little") + text


def test_sizes_by_dtype() -> None:
    assert of(FILE) == TensorSizes(23, {"BF16": 30, "F8_E4M3": 7, "F32": 4})


def test_only_the_length_and_the_header_are_read() -> None:
    ranges: list[tuple[int, int]] = []

    def read(start: int, length: int) -> bytes:
        ranges.append((start, length))
        return FILE[start : start + length]

    read_header(read, len(FILE))
    assert ranges == [(0, 8), (8, len(FILE) - 8 - 41)]


@pytest.mark.parametrize(
    ("content", "problem"),
    [
        (b"", "has 0 bytes, fewer"),
        (b"1234567", "has 7 bytes, fewer"),
        (FILE[:40], "has a header that ends after 32 of"),
        ((2**63).to_bytes(8, "little"), "gives 9,223,372,036,854,775,808 bytes as the length"),
        ((100_000_001).to_bytes(8, "little"), "gives 100,000,001 bytes"),
        ((0).to_bytes(8, "little"), "gives 0 bytes as the length"),
        (framed(b"<html>..."), "has a header that is not JSON"),
        (framed(b"[" * 100_000), "malformed .Expected `object`, got `array`"),
        (framed([]), "malformed .Expected `object`, got `array`"),
        (framed({"a": 1}), "malformed .Expected `object`, got `int`"),
        (framed({"a": {"dtype": "BF16", "shape": [2], "data_offsets": [4, 0]}}), "offsets that do not fit its shape"),
        (framed({"a": {"dtype": "BF16", "shape": ["2"], "data_offsets": [0, 4]}}), "malformed"),
        (framed({"a": {"dtype": "BF16", "shape": [-2], "data_offsets": [0, 4]}}), "malformed"),
    ],
)
def test_a_broken_file_is_named(content: bytes, problem: str) -> None:
    with pytest.raises(BrokenFile, match=problem):
        of(content)


@given(st.binary(max_size=200) | st.binary(max_size=200).map(framed))
def test_no_bytes_give_a_traceback(content: bytes) -> None:
    try:
        of(content)
    except BrokenFile:
        pass
