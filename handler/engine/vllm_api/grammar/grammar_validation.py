"""What vLLM checks of a grammar on the event loop, without parsing it there. Seen on vLLM 0.16.0, 0.24.0 and 0.29.0.

The trial has parsed and compiled each grammar in a process of its own. vLLM would parse it again on the loop, while
every other request waits (vllm/v1/structured_output/backend_xgrammar.py, `validate_xgrammar_grammar`).
"""

from __future__ import annotations

import json
from collections.abc import Callable

from vllm.sampling_params import SamplingParams
from vllm.v1.engine import input_processor
from vllm.v1.structured_output import backend_xgrammar

from handler.engine.vllm_api.client_error import client_error

NAME = "validate_xgrammar_grammar"
FIELD = "structured_outputs"
UNSUPPORTED = "The provided JSON schema contains features not supported by xgrammar."


def replace(tried: Callable[[], bool]) -> None:
    """Has vLLM use `validate` in place of its own function.

    :param tried: whether grammars are tried. If not, vLLM's own function runs.
    """
    original = backend_xgrammar.validate_xgrammar_grammar

    def replaced(params: SamplingParams) -> None:
        if tried():
            validate(params)
        else:
            original(params)

    # 0.24.0 and later import it where they call it, also where they parse a request. 0.16.0 has it in this module.
    for module in (backend_xgrammar, input_processor):
        if hasattr(module, NAME):
            setattr(module, NAME, replaced)


def validate(params: SamplingParams) -> None:
    """Checks that xgrammar enforces all of a schema, and turns choices and Lark grammars into EBNF.

    :raises Exception: `client_error`: xgrammar ignores a keyword of the schema, or a Lark grammar cannot be converted.
    """
    from vllm.v1.structured_output import utils

    structured = params.structured_outputs
    if structured is None:
        return
    if structured.choice:
        structured.grammar, structured.choice = utils.choice_as_grammar(structured.choice), None
    elif structured.json:
        schema = json.loads(structured.json) if isinstance(structured.json, str) else structured.json
        try:
            unsupported = backend_xgrammar.has_xgrammar_unsupported_json_features(schema)
        except (AttributeError, TypeError) as error:  # such as `"format": {}`
            raise client_error("A keyword of the JSON schema has a value of a wrong type.", FIELD) from error
        if unsupported:
            raise client_error(UNSUPPORTED, FIELD)
    elif structured.grammar and utils.grammar_is_likely_lark(structured.grammar):
        try:
            structured.grammar = utils.convert_lark_to_ebnf(structured.grammar)
        except ValueError as error:
            raise client_error("The grammar cannot be converted from Lark to EBNF.", FIELD) from error
