from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st
from published_models import safetensors

from handler.errors import SettingError
from handler.storage.safetensors_header import TensorSizes, add, read_header

FILE = safetensors({"a": ("BF16", [3, 5], 2), "b": ("F8_E4M3", [7], 1), "scalar": ("F32", [], 4)})


def of(content: bytes) -> TensorSizes:
    return read_header(lambda begin, end: content[begin:end], "s3://bucket/model.safetensors")


def framed(header: object) -> bytes:
    text = header if isinstance(header, bytes) else json.dumps(header).encode()
    return len(text).to_bytes(8, "little") + text


def test_sizes_by_dtype() -> None:
    assert of(FILE) == TensorSizes(23, {"BF16": 30, "F8_E4M3": 7, "F32": 4})


def test_only_the_length_and_the_header_are_read() -> None:
    asked: list[tuple[int, int]] = []

    def read(begin: int, end: int) -> bytes:
        asked.append((begin, end))
        return FILE[begin:end]

    read_header(read, "m")
    assert asked == [(0, 8), (8, len(FILE) - 41)]


def test_sizes_add_up() -> None:
    total = add([of(FILE), of(FILE)])
    assert (total.parameters, total.total) == (46, 82)


@pytest.mark.parametrize(
    ("content", "problem"),
    [
        (b"", "it has 0 bytes"),
        (b"1234567", "it has 7 bytes"),
        (FILE[:40], "its header ends after 32 of"),
        ((2**63).to_bytes(8, "little"), r"says that it is 9,223,372,036,854,775,808 bytes long"),
        ((100_000_001).to_bytes(8, "little"), "bytes long"),
        ((0).to_bytes(8, "little"), "says that it is 0 bytes long"),
        (framed(b"<html>..."), "its header is not JSON"),
        (framed(b"[" * 100_000), "its header is not JSON"),
        (framed([]), "its header is not a JSON object"),
        (framed({"a": 1}), "the entry of 'a' in its header is malformed"),
        (framed({"a": {"dtype": "BF16", "shape": [2], "data_offsets": [4, 0]}}), "malformed"),
        (framed({"a": {"dtype": "BF16", "shape": ["2"], "data_offsets": [0, 4]}}), "malformed"),
        (framed({"a": {"dtype": "BF16", "shape": [-2], "data_offsets": [0, 4]}}), "malformed"),
    ],
)
def test_a_broken_file_is_named(content: bytes, problem: str) -> None:
    with pytest.raises(SettingError, match=rf"^s3://bucket/model.safetensors: is not a safetensors file: .*{problem}"):
        of(content)


@given(st.binary(max_size=200) | st.binary(max_size=200).map(framed))
def test_no_bytes_give_a_traceback(content: bytes) -> None:
    try:
        of(content)
    except SettingError:
        pass
