"""What becomes of grammars while the process that tries them cannot be started, and which are quick. No engine runs."""

from __future__ import annotations

import asyncio
import sys
from importlib import import_module
from typing import Any

import pytest

from handler.engine.grammar import trial_lane
from handler.engine.grammar.grammar_trial import GrammarTrial
from handler.errors import GrammarNotTried

pytestmark = pytest.mark.engine
UNPARSABLE = "["
REJECTING = """
import socket
from handler.engine.grammar.trial_process import serve
control = socket.socket(fileno=0)
control.sendall(b"ready")
serve(control, lambda kind, spec: "rejected")
"""


def test_vllm_reads_what_was_let_through_and_a_new_grammar_is_tried_later(monkeypatch: pytest.MonkeyPatch) -> None:
    vllm: Any = import_module("vllm.sampling_params")  # takes seconds
    backend: Any = import_module("vllm.v1.structured_output.backend_xgrammar")
    guards: Any = import_module("handler.engine.v1.grammar_guard")
    for module in (backend, *map(sys.modules.get, guards.IMPORTERS)):
        if hasattr(module, guards.VALIDATE):
            monkeypatch.setattr(module, guards.VALIDATE, getattr(module, guards.VALIDATE))

    def with_regex(regex: str) -> Any:
        return vllm.SamplingParams(structured_outputs=vllm.StructuredOutputsParams(regex=regex))

    others = guards.GrammarGuard(GrammarTrial("no tokenizer", 10))  # of another model in the same process
    trial = GrammarTrial("no tokenizer", 10)
    guard = guards.GrammarGuard(trial)
    for each in (others, guard, others):
        each.replace_validation()
    try:
        trial.process._command = (sys.executable, "-c", "")  # ends without having started
        asyncio.run(guard.check(with_regex(UNPARSABLE)))

        trial.process._command = (sys.executable, "-c", REJECTING)
        monkeypatch.setattr(trial_lane, "RETRY_SECONDS", 0.0)
        with pytest.raises(Exception, match="rejected"):
            asyncio.run(guard.check(with_regex("a")))

        guard.require_tried(with_regex(UNPARSABLE))  # the request that was let through goes on
        with pytest.raises(Exception, match="Failed to transform regex"):
            getattr(backend, guards.VALIDATE)(with_regex(UNPARSABLE))
    finally:
        guard.close()
        others.close()


def test_the_grammar_of_a_request_that_has_ended_takes_no_trial() -> None:
    """Those that come after it would wait for it."""
    vllm: Any = import_module("vllm.sampling_params")
    guards: Any = import_module("handler.engine.v1.grammar_guard")
    trial = GrammarTrial("no tokenizer", 10)
    trial.process._command = (sys.executable, "-c", REJECTING)
    guard = guards.GrammarGuard(trial)
    params = vllm.SamplingParams(structured_outputs=vllm.StructuredOutputsParams(regex="left"))
    try:
        with pytest.raises(GrammarNotTried):
            asyncio.run(guard.check(params, lambda: False))
        assert trial.process.pid is None
        assert trial.known("regex", "left") is None
    finally:
        guard.close()


ALL_PASS = """
import socket, time
from handler.engine.grammar.trial_process import serve
control = socket.socket(fileno=0)
control.sendall(b"ready")

def tried(kind, spec):
    began = time.process_time()
    while spec == "slow" and time.process_time() < began + 0.1:
        pass

serve(control, tried)
"""


@pytest.mark.parametrize(
    ("program", "regex", "quick"), [(ALL_PASS, "fast", True), (ALL_PASS, "slow", False), ("", "fast", False)]
)
def test_what_the_core_compiles_at_once_is_what_the_trial_compiled_at_once(
    program: str, regex: str, quick: bool
) -> None:
    """A request with such a grammar is paced as others are."""
    vllm: Any = import_module("vllm.sampling_params")
    guard = import_module("handler.engine.v1.grammar_guard").GrammarGuard(GrammarTrial("no tokenizer", 10))
    guard._trial.process._command = (sys.executable, "-c", program)
    params = vllm.SamplingParams(structured_outputs=vllm.StructuredOutputsParams(regex=regex))
    try:
        assert not guard.compiles_at_once(params)
        asyncio.run(guard.check(params))
        assert guard.compiles_at_once(params) is quick
        assert guard.compiles_at_once(
            vllm.SamplingParams(structured_outputs=vllm.StructuredOutputsParams(json_object=True))
        )
    finally:
        guard.close()
