"""Has every grammar tried before vLLM reads it, on every path of a request. Seen on vLLM 0.16.0, 0.24.0 and 0.29.0.

vLLM reads a grammar on the event loop, behind the gate that every request passes (`queued_requests.py`). There an
untried grammar raises an exception. The code that catches it awaits the trial and calls vLLM again.

The trial has parsed and compiled each grammar in a process of its own. vLLM would parse it again on the loop, while
every other request waits (vllm/v1/structured_output/backend_xgrammar.py, `validate_xgrammar_grammar`). So `validate`
replaces that function.
"""

from __future__ import annotations

import asyncio
import json
import sys
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any, Final

from vllm.sampling_params import SamplingParams
from vllm.v1.engine.async_llm import AsyncLLM
from vllm.v1.structured_output import backend_xgrammar
from vllm.v1.structured_output import utils as vllm_grammars

from handler.engine.engine_client.client_error import client_error
from handler.engine.grammar.grammar_trial import GrammarTrial
from handler.engine.grammar.trial_lane import TakesLonger
from handler.errors import GrammarNotTried

BACKEND = "xgrammar"
FIELD = "structured_outputs"
# Turns Lark into EBNF. Since 0.32.0 xgrammar itself reads Lark, and this is None.
CONVERT_LARK: Any = getattr(vllm_grammars, "convert_lark_to_ebnf", None)
VALIDATE = "validate_xgrammar_grammar"
# The modules that import vLLM's function by its name, 0.11 and 0.16.0. Later versions import it where they call it.
IMPORTERS = ("vllm.v1.engine.processor", "vllm.v1.engine.input_processor")
# Seconds of processor time. As long as this, the compile of a grammar is part of its request's prefill.
AT_ONCE = 0.05
UNSUPPORTED = "The provided JSON schema contains features not supported by xgrammar."
# The kind and the text of a grammar, as the core will compile it.
Spec = tuple[str, str]


# vLLM's own, as it is imported.
ORIGINAL: Final = backend_xgrammar.validate_xgrammar_grammar


class GrammarUntried(BaseException):
    """A request has a grammar that has not been tried. It passes through vLLM, which catches every `Exception`."""

    def __init__(self, spec: Spec) -> None:
        self.spec = spec
        super().__init__("a grammar has not been tried")


class GrammarGuard:
    """Rejects grammars that the engine's core cannot compile.

    :param trial: compiles a grammar in a process of its own.
    """

    def __init__(self, trial: GrammarTrial) -> None:
        self._trial = trial
        self._quick = ThreadPoolExecutor(1, "grammar-trial")
        self._slow = ThreadPoolExecutor(1, "grammar-trial")

    async def check(self, params: object, wanted: Callable[[], bool] = lambda: True) -> None:
        """Waits for the trial of a request's grammar. Call on the engine's loop, which is not blocked.

        :param wanted: returns False once the request has ended. Its trial then takes no time.
        :raises Exception: `client_error`: the grammar cannot be compiled.
        :raises GrammarNotTried: nobody knows. The request may be sent again.
        """
        try:
            self.require_tried(params)
        except GrammarUntried as untried:
            await self.check_spec(untried.spec, wanted)

    def require_tried(self, params: object) -> None:
        """As `check`, without waiting.

        :raises GrammarUntried: `check_spec` is to be awaited first.
        :raises Exception: as `check`.
        """
        spec = _spec_in(params)
        if spec is not None:
            known = self._trial.known(*spec)
            if known is None:
                raise GrammarUntried(spec)
            _require(known.problem)

    def compiles_at_once(self, params: SamplingParams) -> bool:
        """Whether the core compiles a request's grammar within `AT_ONCE`, by its trial. Call after `require_tried`."""
        spec = _spec_in(params)
        known = None if spec is None else self._trial.known(*spec)
        return spec is None or (known is not None and known.seconds <= AT_ONCE)

    async def check_spec(self, spec: Spec, wanted: Callable[[], bool] = lambda: True) -> None:
        """As `check`, for a grammar that has not been tried."""
        loop = asyncio.get_running_loop()

        def in_turn(problem: Callable[[str, str], str | None]) -> str | None:
            if not wanted():
                raise GrammarNotTried
            return problem(*spec)

        try:
            problem = await loop.run_in_executor(self._quick, in_turn, self._trial.quick_problem)
        except TakesLonger:
            problem = await loop.run_in_executor(self._slow, in_turn, self._trial.slow_problem)
        _require(problem)

    def replace_validation(self) -> None:
        """Has vLLM use `validate` in place of its own function, but for grammars that were let through untried."""
        earlier = backend_xgrammar.validate_xgrammar_grammar
        tried = validate if earlier is ORIGINAL else earlier  # this process has another engine, with its own trials

        def replaced(params: SamplingParams) -> None:
            spec = _spec_in(params)
            untried = spec is not None and self._trial.is_untried(*spec)
            (ORIGINAL if untried else tried)(params)

        for module in (backend_xgrammar, *map(sys.modules.get, IMPORTERS)):
            if hasattr(module, VALIDATE):
                setattr(module, VALIDATE, replaced)

    def close(self) -> None:
        self._trial.close()
        for thread in (self._quick, self._slow):
            thread.shutdown(wait=False, cancel_futures=True)


def _require(problem: str | None) -> None:
    if problem is not None:
        raise client_error(f"The grammar is rejected: {problem}", FIELD)


def _spec_in(params: object) -> Spec | None:
    """:returns: None: there is nothing to try."""
    structured = params.structured_outputs if isinstance(params, SamplingParams) else None
    return None if structured is None else spec_of(structured)


def spec_of(structured: Any) -> Spec | None:
    """None: there is nothing to try.

    :raises Exception: `client_error`: there is none, as in `{"json_object": false}`, which ends the core (vLLM 0.16).

    vLLM turns choices into EBNF before the core has them, and up to 0.29 Lark grammars too (validate_xgrammar_grammar).
    """
    if structured.json is not None:
        schema = structured.json
        return "json", schema if isinstance(schema, str) else json.dumps(schema)
    if structured.regex is not None:
        return "regex", structured.regex
    if structured.choice is not None:
        return "ebnf", vllm_grammars.choice_as_grammar(structured.choice)
    if structured.grammar is not None:
        text = structured.grammar
        if not vllm_grammars.grammar_is_likely_lark(text):
            return "ebnf", text
        if CONVERT_LARK is None:
            return "lark", text
        try:
            return "ebnf", CONVERT_LARK(text)
        except ValueError:
            return None  # vLLM rejects it
    if structured.structural_tag is not None:
        return "structural_tag", structured.structural_tag
    if not structured.json_object:
        _require("there is none in it")
    return None


def validate(params: SamplingParams) -> None:
    """Checks that xgrammar enforces all of a schema, and turns choices and Lark grammars into EBNF.

    :raises Exception: `client_error`: xgrammar ignores a keyword of the schema, or a Lark grammar cannot be converted.
    """
    structured = params.structured_outputs
    if structured is None:
        return
    if structured.choice:
        structured.grammar, structured.choice = vllm_grammars.choice_as_grammar(structured.choice), None
    elif structured.json:
        schema = json.loads(structured.json) if isinstance(structured.json, str) else structured.json
        try:
            unsupported = backend_xgrammar.has_xgrammar_unsupported_json_features(schema)
        except (AttributeError, TypeError) as error:  # such as `"format": {}`
            raise client_error("A keyword of the JSON schema has a value of a wrong type.", FIELD) from error
        if unsupported:
            raise client_error(UNSUPPORTED, FIELD)
    elif CONVERT_LARK is not None and structured.grammar and vllm_grammars.grammar_is_likely_lark(structured.grammar):
        try:
            structured.grammar = CONVERT_LARK(structured.grammar)
        except ValueError as error:
            raise client_error("The grammar cannot be converted from Lark to EBNF.", FIELD) from error


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
    guard.replace_validation()
    return guard
