"""Has every grammar tried before vLLM reads it, on every path of a request. Seen on vLLM 0.16.0 and 0.24.0.

vLLM reads a grammar on the event loop, behind the gate that every request passes (`queued_requests.py`). There an
untried grammar raises an exception. The code that catches it awaits the trial and calls vLLM again.
"""

from __future__ import annotations

import asyncio
import json
import logging
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from vllm.sampling_params import SamplingParams
from vllm.v1.engine.async_llm import AsyncLLM
from vllm.v1.structured_output.utils import choice_as_grammar, grammar_is_likely_lark

from handler.engine.engine_client.client_error import client_error
from handler.engine.grammar.grammar_trial import GrammarTrial
from handler.engine.grammar.trial_lane import TakesLonger, TrialUnavailable
from handler.engine.v1.grammar import grammar_validation

logger = logging.getLogger(__name__)
BACKEND = "xgrammar"


class GrammarUntried(BaseException):
    """A request has a grammar that has not been tried. It passes through vLLM, which catches every `Exception`."""

    def __init__(self, params: SamplingParams) -> None:
        self.params = params
        super().__init__("a grammar has not been tried")


class GrammarGuard:
    """Rejects grammars that the engine's core cannot compile.

    :param trial: compiles a grammar in a process of its own.
    :ivar available: grammars are tried.
    """

    def __init__(self, trial: GrammarTrial) -> None:
        self._trial = trial
        self._quick = ThreadPoolExecutor(1, "grammar-trial")
        self._slow = ThreadPoolExecutor(1, "grammar-trial")
        self.available = True

    async def check(self, params: object) -> None:
        """Waits for the trial of a request's grammar. Call on the engine's loop, which is not blocked.

        :raises Exception: `client_error`: the grammar cannot be compiled.
        """
        structured = params.structured_outputs if isinstance(params, SamplingParams) else None
        if structured is not None and self.available:
            _require(await self._problem(structured))

    def require_tried(self, params: object) -> None:
        """As `check`, without waiting.

        :raises GrammarUntried: `check` is to be awaited first.
        :raises Exception: as `check`.
        """
        structured = params.structured_outputs if isinstance(params, SamplingParams) else None
        if structured is None or not self.available:
            return
        spec = spec_of(structured)
        if spec is not None:
            known, problem = self._trial.known(*spec)
            if not known:
                assert isinstance(params, SamplingParams)
                raise GrammarUntried(params)
            _require(problem)

    async def ensure_tried(self, params: object) -> None:
        """As `check`, but a grammar that has been tried waits for no other one's trial."""
        try:
            self.require_tried(params)
        except GrammarUntried:
            await self.check(params)

    async def _problem(self, structured: Any) -> str | None:
        loop = asyncio.get_running_loop()
        try:
            try:
                return await loop.run_in_executor(self._quick, _tried, self._trial.quick_problem, structured)
            except TakesLonger:
                return await loop.run_in_executor(self._slow, _tried, self._trial.slow_problem, structured)
        except TrialUnavailable as error:
            self.available = False
            logger.warning("grammars are not tried before the engine compiles them: %s", error)
            return None

    def close(self) -> None:
        self._trial.close()
        for thread in (self._quick, self._slow):
            thread.shutdown(wait=False, cancel_futures=True)


def _tried(problem: Callable[[str, str], str | None], structured: Any) -> str | None:
    spec = spec_of(structured)
    return None if spec is None else problem(*spec)


def _require(problem: str | None) -> None:
    if problem is not None:
        raise client_error(f"The grammar is rejected: {problem}", grammar_validation.FIELD)


def spec_of(structured: Any) -> tuple[str, str] | None:
    """The kind and the text of a grammar, as the core will compile it. None: there is nothing to try.

    :raises Exception: `client_error`: there is none, as in `{"json_object": false}`, which ends the core (vLLM 0.16).

    vLLM turns choices into EBNF before the core has them, and up to 0.29 Lark grammars too (validate_xgrammar_grammar).
    """
    if structured.json is not None:
        schema = structured.json
        return "json", schema if isinstance(schema, str) else json.dumps(schema)
    if structured.regex is not None:
        return "regex", structured.regex
    if structured.choice is not None:
        return "ebnf", choice_as_grammar(structured.choice)
    if structured.grammar is not None:
        text = structured.grammar
        if not grammar_is_likely_lark(text):
            return "ebnf", text
        if grammar_validation.CONVERT_LARK is None:
            return "lark", text
        try:
            return "ebnf", grammar_validation.CONVERT_LARK(text)
        except ValueError:
            return None  # vLLM rejects it
    if structured.structural_tag is not None:
        return "structural_tag", structured.structural_tag
    if not structured.json_object:
        _require("there is none in it")
    return None


def guard_of(llm: AsyncLLM) -> GrammarGuard | None:
    """The guard of an engine. None: another library than xgrammar compiles its grammars."""
    config = llm.vllm_config
    outputs = config.structured_outputs_config
    if outputs.backend != BACKEND:
        return None
    model = config.model_config
    trial = GrammarTrial(
        str(model.tokenizer or model.model),
        int(model.get_vocab_size()),
        any_whitespace=not outputs.disable_any_whitespace,
    )
    guard = GrammarGuard(trial)
    grammar_validation.replace(lambda: guard.available)
    return guard
