"""SageMaker's custom attributes: pairs between semicolons, whatever a client makes of them."""

from __future__ import annotations

import pytest

from container.requests.custom_attributes import parse


@pytest.mark.parametrize(
    ("header", "pairs"),
    [
        (None, {}),
        ("", {}),
        (";;", {}),
        ("route=/v1/responses", {"route": "/v1/responses"}),
        ("Trace-Id=1-2-3; Route=/tokenize ;", {"trace-id": "1-2-3", "route": "/tokenize"}),
        ("a=b=c", {"a": "b=c"}),
        ("accept_eula", {"accept_eula": ""}),
        ('a="b"', {"a": "b"}),
        ("a=1;a=2", {"a": "2"}),
        ("=1", {}),
        ("7f3c6d9a-trace", {"7f3c6d9a-trace": ""}),
    ],
)
def test_pairs(header: str | None, pairs: dict[str, str]) -> None:
    assert parse(header) == pairs
