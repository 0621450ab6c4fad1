"""The backend for grammars: one for all requests, set by the plan unless the user gives it."""

from __future__ import annotations

from typing import Any

import pytest

from handler.config.finding import Severity
from tests.handler.neuron.neuron_plans import GRAMMARS, found, outcome, planned, warnings

NAME = "structured_outputs_config"
PINNED = ("cpu", "nxdi-0.16", "nxdi-0.13", "native-0.24", "native-0.21")


@pytest.mark.parametrize("line", PINNED)
@pytest.mark.parametrize(
    ("given", "config"),
    [
        (None, GRAMMARS[NAME]),
        ({}, GRAMMARS[NAME]),
        ({"disable_any_whitespace": True}, {"backend": "xgrammar", "disable_any_whitespace": True}),
        ({"backend": "guidance"}, {"backend": "guidance"}),
        ({"backend": "outlines", "enable_in_reasoning": True}, {"backend": "outlines", "enable_in_reasoning": True}),
    ],
)
def test_one_backend_unless_another_is_given(line: str, given: dict[str, Any] | None, config: dict[str, Any]) -> None:
    result = outcome(line, engine_args={} if given is None else {NAME: given})
    assert result.plan is not None
    assert result.plan.engine_args[NAME] == config
    assert warnings(result) == []


@pytest.mark.parametrize("line", ["fork-0.9.1", "fork-0.7.2", "optimum"])
def test_no_line_gets_an_argument_that_its_vllm_may_not_have(line: str) -> None:
    assert NAME not in planned(line).engine_args


def test_auto_is_kept_and_warned_of() -> None:
    result = outcome("cpu", engine_args={NAME: {"backend": "auto"}})
    finding = found(result, "grammar-backend-auto")
    assert finding.severity is Severity.WARNING
    assert finding.setting == f"{NAME}.backend"
    assert result.plan is not None
    assert result.plan.engine_args[NAME] == {"backend": "auto"}
