from __future__ import annotations

import pytest

from handler.config.loading.line_formats import parse_env_file
from handler.errors import SettingError

TEXT = """\ufeff# a comment
HF_MODEL_ID=org/name
   SM_VLLM_SEED=1
EMPTY=
QUOTED="a b"
HASH=a # b
EQUALS=a=b
HF_TOKEN
NOT_SET
TWICE=1
TWICE=2\r
"""


def test_dockers_format() -> None:
    assert parse_env_file(TEXT, "env", {"HF_TOKEN": "secret"}) == {
        "HF_MODEL_ID": "org/name",
        "SM_VLLM_SEED": "1",
        "EMPTY": "",
        "QUOTED": '"a b"',
        "HASH": "a # b",
        "EQUALS": "a=b",
        "HF_TOKEN": "secret",
        "TWICE": "2",
    }


@pytest.mark.parametrize("line", ["=x", "export A=1", "A B=1", "A =1"])
def test_a_line_that_docker_refuses(line: str) -> None:
    with pytest.raises(SettingError) as caught:
        parse_env_file(f"OK=1\n{line}\n", "my.env", {})
    assert caught.value.setting == "my.env, line 2"
