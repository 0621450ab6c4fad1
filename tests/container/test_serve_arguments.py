"""`serve` with arguments, which it does not read."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

SERVE = Path(sys.executable).parent / "serve"


def served(*arguments: str) -> tuple[int, str, str]:
    # What it says of the port is its next step.
    environment = {"PATH": "/usr/bin:/bin", "SAGEMAKER_BIND_TO_PORT": "none"}
    done = subprocess.run((SERVE, *arguments), env=environment, capture_output=True, text=True, timeout=60, check=False)
    return done.returncode, done.stdout, done.stderr


@pytest.mark.parametrize(
    ("arguments", "named"),
    [
        (("--max-model-len", "4096"), "--max-model-len"),
        (("meta-llama/Llama-3.1-8B",), "meta-llama/Llama-3.1-8B"),
        (("serve", "--port=80"), "--port=80"),
    ],
)
def test_an_argument_is_refused_and_the_right_way_is_told(arguments: tuple[str, ...], named: str) -> None:
    status, out, problem = served(*arguments)
    assert (status, out) == (2, "")
    assert f"'{named}' would have no effect" in problem
    assert "neuron-endpoint translate -- vllm serve" in problem


@pytest.mark.parametrize("option", ["-h", "--help"])
def test_help_starts_nothing(option: str) -> None:
    status, out, problem = served(option)
    assert (status, problem) == (0, "")
    assert "SM_VLLM_MAX_MODEL_LEN=4096 serve" in out


@pytest.mark.parametrize("arguments", [(), ("serve",)])
def test_the_word_of_sagemaker_is_no_argument(arguments: tuple[str, ...]) -> None:
    status, _, problem = served(*arguments)
    assert (status, "SAGEMAKER_BIND_TO_PORT" in problem) == (2, True)


def test_the_commands_that_the_help_names_are_there() -> None:
    _, out, _ = served("--help")
    named = re.findall(r"neuron-endpoint ([a-z]+(?: explain)?)", out)
    assert named == ["config explain", "check", "translate"]
    for words in named:
        command = (SERVE.with_name("neuron-endpoint"), *words.split(), "--help")
        assert subprocess.run(command, capture_output=True, timeout=60, check=False).returncode == 0
