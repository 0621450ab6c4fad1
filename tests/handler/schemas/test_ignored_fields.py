"""What is no slip of the pen is taken off; what is, stays to be refused."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from handler.schemas.ignored_fields import drop_ignored_fields

PLAIN: Any = SimpleNamespace(served_names=("sample",), adapters=None)
ADAPTED: Any = SimpleNamespace(served_names=("sample", "tuned"), adapters=object())


def test_a_clients_own_settings_wherever_it_puts_them() -> None:
    stray = {"sagemaker_base_url": "http://x", "model_id": "component"}
    assert drop_ignored_fields({"prompt": "a", **stray}, PLAIN) == {"prompt": "a"}
    body = {"inputs": "a", "parameters": {"max_new_tokens": 3, **stray}}
    assert drop_ignored_fields(body, PLAIN) == {"inputs": "a", "parameters": {"max_new_tokens": 3}}
    assert "model_id" in body["parameters"], "the body that came is left as it is"


@pytest.mark.parametrize("model", ["my-endpoint", "gpt-9"])
def test_a_model_that_is_not_there_unless_one_can_be_chosen(model: str) -> None:
    body = {"prompt": "a", "model": model}
    assert drop_ignored_fields(body, PLAIN) == {"prompt": "a"}
    assert drop_ignored_fields(body, ADAPTED) == body


@pytest.mark.parametrize(
    "body", [{"prompt": "a", "model": "sample"}, {"prompt": "a", "model": 7}, {"prompt": "a", "max_tokns": 3}, {}]
)
def test_all_else_stays(body: dict[str, Any]) -> None:
    assert drop_ignored_fields(body, PLAIN) == body
