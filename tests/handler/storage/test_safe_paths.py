from __future__ import annotations

from pathlib import PurePosixPath

import pytest
from hypothesis import given
from hypothesis import strategies as st

from handler.storage.safe_paths import confined, confined_all
from handler.storage.storage_errors import UnsafePath

BAD = [
    "",
    "/etc/passwd",
    "../x",
    "a/../../x",
    "a/./b",
    "a//b",
    "a/",
    ".",
    "..",
    "a\\..\\b",
    "\\\\host\\share",
    "c:/windows",
    "a\0b",
    "a\nb",
    "a\x7fb",
    "\ud800",
    "n" * 256,
    "d/" * 600 + "f",
    "d/" * 65 + "f",
]


@pytest.mark.parametrize("path", BAD, ids=ascii)
def test_a_path_that_is_not_plain_is_refused(path: str) -> None:
    with pytest.raises(UnsafePath):
        confined(path)


@pytest.mark.parametrize("path", ["model.pt", "weights/tp0.safetensors", "a/b/c/..d", "...", "with blank/é.json"])
def test_a_plain_path_is_taken(path: str) -> None:
    assert confined(path) == path


@given(st.text(st.sampled_from("ab./\\:\0é"), max_size=12))
def test_whatever_is_taken_stays_below_its_directory(path: str) -> None:
    try:
        confined(path)
    except UnsafePath:
        return
    joined = PurePosixPath("/target") / path
    assert joined.parts[:2] == ("/", "target")
    assert ".." not in joined.parts
    assert len(joined.parts) > 2
    assert str(joined) == f"/target/{path}"


@pytest.mark.parametrize(
    ("paths", "problem"),
    [
        (["a", "a"], "twice"),
        (["weights/A", "weights/a"], "case"),
        (["a", "a/b"], "below the file"),
        (["a/b", "a"], "below the file"),
        (["x/y/z", "X/y"], "below the file"),
        (["a", "a.b", "a/b"], "below the file"),
        (["ok", "../x"], ".."),
    ],
)
def test_paths_that_clash_are_refused_in_any_order(paths: list[str], problem: str) -> None:
    with pytest.raises(UnsafePath, match=problem):
        confined_all(paths)
    with pytest.raises(UnsafePath):
        confined_all(reversed(paths))


def test_paths_that_fit_together_are_taken() -> None:
    confined_all(["a/b", "a/c", "b", "a.b", "A2/x"])
