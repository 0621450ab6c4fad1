"""What vLLM checks of a grammar on the event loop, without parsing it there. Seen on vLLM 0.16.0, 0.24.0 and 0.29.0.

The trial has parsed and compiled each grammar in a process of its own. vLLM would parse it again on the loop, while
every other request waits (vllm/v1/structured_output/backend_xgrammar.py, `validate_xgrammar_grammar`).
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from typing import Any

from vllm.sampling_params import SamplingParams
from vllm.v1.structured_output import backend_xgrammar, utils

from handler.engine.engine_client.client_error import client_error

NAME = "validate_xgrammar_grammar"
FIELD = "structured_outputs"
# Turns Lark into EBNF. Since 0.32.0 xgrammar itself reads Lark, and this is None.
CONVERT_LARK: Any = getattr(utils, "convert_lark_to_ebnf", None)
# The modules that import vLLM's function by its name, 0.11 and 0.16.0. Later versions import it where they call it.
IMPORTERS = ("vllm.v1.engine.processor", "vllm.v1.engine.input_processor")
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

    for module in (backend_xgrammar, *map(sys.modules.get, IMPORTERS)):
        if hasattr(module, NAME):
            setattr(module, NAME, replaced)


def validate(params: SamplingParams) -> None:
    """Checks that xgrammar enforces all of a schema, and turns choices and Lark grammars into EBNF.

    :raises Exception: `client_error`: xgrammar ignores a keyword of the schema, or a Lark grammar cannot be converted.
    """
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
    elif CONVERT_LARK is not None and structured.grammar and utils.grammar_is_likely_lark(structured.grammar):
        try:
            structured.grammar = CONVERT_LARK(structured.grammar)
        except ValueError as error:
            raise client_error("The grammar cannot be converted from Lark to EBNF.", FIELD) from error
