"""The table of request fields, for tests and as the page: a value with an effect for each name, and docs/requests.md.

`make docs` writes the page's table. `tests/handler/schemas/test_field_kinds.py` compares it.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

from handler.schemas.reply import encode
from handler.schemas.request_fields import TABLE, Body, FieldRow, meanings

PAGE: Final = Path(__file__).parents[1] / "docs/requests.md"
BEGIN, END = "<!-- made by `make docs` -->\n", "<!-- end of the table -->\n"
COLUMNS: Final = (Body.CHAT, Body.COMPLETION, Body.RESPONSE, Body.MESSAGE, Body.INPUTS, Body.PARAMETERS)
NAMES: Final = sorted(name for row in TABLE for name in row.every_name())
HELLO: Final = [{"role": "user", "content": "Hello"}]
# A body that is answered, with few tokens, and its path.
BODIES: Final[Mapping[Body, tuple[str, dict[str, Any]]]] = {
    Body.CHAT: ("/v1/chat/completions", {"messages": HELLO, "max_tokens": 2}),
    Body.COMPLETION: ("/v1/completions", {"prompt": "a", "max_tokens": 2}),
    Body.RESPONSE: ("/v1/responses", {"input": "a", "max_output_tokens": 2}),
    Body.MESSAGE: ("/v1/messages", {"messages": HELLO, "max_tokens": 2}),
    Body.INPUTS: ("/invocations", {"inputs": "a", "parameters": {"max_new_tokens": 2}}),
    Body.PARAMETERS: ("/invocations", {"inputs": "a", "parameters": {"max_new_tokens": 2}}),
}
TOOL: Final = {"name": "f", "parameters": {"type": "object"}}
SCHEMA: Final = {"type": "object", "properties": {"a": {"type": "integer"}}, "required": ["a"]}
# For each name a value with an effect; "x" for all others. A pair has fields that the value needs beside it.
VALUES: Final[Mapping[str, Any]] = {
    "messages": [{"role": "user", "content": "Bye"}], "inputs": "b", "input": "b", "prompt": "b",
    "model": "nobody", "adapters": "nobody", "parameters": {"max_new_tokens": 3},
    "max_tokens": 1, "max_completion_tokens": 1, "max_output_tokens": 1, "max_new_tokens": 1,
    "min_tokens": 1, "temperature": 0.3, "top_p": 0.3, "top_k": 3, "min_p": 0.3, "repetition_penalty": 1.3,
    "frequency_penalty": 0.3, "presence_penalty": 0.3, "seed": 7, "do_sample": False, "logit_bias": {"5": 3},
    "allowed_token_ids": [5, 6], "bad_words": ["b"], "use_beam_search": True,
    "length_penalty": (2.0, {"use_beam_search": True}), "stop": ["b"], "stop_sequences": ["b"], "stop_token_ids": [5],
    "ignore_eos": True, "ignore_eos_token": True, "n": 2, "best_of": (2, {"do_sample": True}), "prompt_logprobs": 1,
    "top_n_tokens": 2, "details": True, "decoder_input_details": True, "echo": True, "return_full_text": True,
    "return_token_ids": True, "return_tokens_as_token_ids": True, "include_stop_str_in_output": True,
    "skip_special_tokens": False, "spaces_between_special_tokens": False, "output_formatter": "sse",
    "structured_outputs": {"choice": ["b"]}, "guided_choice": ["b"], "guided_json": SCHEMA, "guided_regex": "b",
    "guided_grammar": 'root ::= "b"', "guided_whitespace_pattern": (" ", {"guided_json": SCHEMA}),
    "response_format": {"type": "json_object"}, "grammar": {"type": "regex", "value": "b"},
    "text": {"format": {"type": "json_schema", "name": "a", "schema": SCHEMA}},
    "output_config": {"format": {"type": "json_schema", "schema": SCHEMA}},
    "reasoning_effort": "low", "reasoning": {"effort": "low"}, "thinking": {"type": "disabled"},
    "chat_template_kwargs": {"a": 1}, "documents": [{"title": "a", "text": "b"}], "add_special_tokens": False,
    "add_generation_prompt": False, "continue_final_message": (True, {"add_generation_prompt": False}),
    "mm_processor_kwargs": {"a": 1}, "truncate_prompt_tokens": 1, "truncate": 1, "truncation": "auto", "priority": 1,
    "vllm_xargs": {"a": 1}, "kv_transfer_params": {"a": 1}, "stream": True,
    "parallel_tool_calls": False, "include_reasoning": False,
    "include": ["message.output_text.logprobs"], "max_tool_calls": 3,
    "background": True, "store": False, "service_tier": "flex", "metadata": {"a": "b"},
    "enable_response_messages": True, "previous_input_messages": HELLO, "system": "b",
}  # fmt: skip
STREAMED: Final = ({"include_usage": True}, {"stream": True})
BY_BODY: Final[Mapping[tuple[str, Body], Any]] = {
    ("logprobs", Body.CHAT): True,
    ("logprobs", Body.COMPLETION): 1,
    ("top_logprobs", Body.CHAT): (2, {"logprobs": True}),
    ("top_logprobs", Body.RESPONSE): (2, {"include": ["message.output_text.logprobs"]}),
    ("stream_options", Body.CHAT): STREAMED,
    ("stream_options", Body.COMPLETION): STREAMED,
    ("use_beam_search", Body.CHAT): (True, {"n": 2}),
    ("add_special_tokens", Body.CHAT): True,
    ("tools", Body.CHAT): [{"type": "function", "function": TOOL}],
    ("tools", Body.RESPONSE): [{"type": "function", **TOOL}],
    ("tools", Body.MESSAGE): [{"name": "f", "input_schema": {"type": "object"}}],
    ("tool_choice", Body.CHAT): ("required", {"tools": [{"type": "function", "function": TOOL}]}),
    ("tool_choice", Body.RESPONSE): ("required", {"tools": [{"type": "function", **TOOL}]}),
    ("tool_choice", Body.MESSAGE): ({"type": "any"}, {"tools": [{"name": "f", "input_schema": {"type": "object"}}]}),
    ("seed", Body.PARAMETERS): (7, {"do_sample": True}),
    ("parallel_tool_calls", Body.CHAT): (False, {"tools": [{"type": "function", "function": TOOL}]}),
    ("include_reasoning", Body.CHAT): (False, {"tools": [{"type": "function", "function": TOOL}]}),
    ("do_sample", Body.PARAMETERS): True,
}


def value_of(name: str, body: Body) -> tuple[Any, dict[str, Any]]:
    """A value with an effect, and the fields that it needs beside it."""
    value = BY_BODY.get((name, body), VALUES.get(name, "x"))
    value, beside = value if isinstance(value, tuple) else (value, {})
    return value, beside if meanings(body)[name].honoured else {}


def body_with(name: str, body: Body, *, stream: bool = False) -> tuple[str, dict[str, Any]]:
    """A body that has a name with an effect, and its path."""
    path, base = BODIES[body]
    value, beside = value_of(name, body)
    fields = {**beside, name: value}
    document = (
        {**base, "parameters": {**base["parameters"], **fields}} if body is Body.PARAMETERS else {**base, **fields}
    )
    return path, {"stream": True, **document} if stream else document


def table() -> str:
    """The table as Markdown: a row for each row."""
    heads = [*COLUMNS, "other names", "elsewhere", "ask for nothing"]
    lines = [f"| {' | '.join(heads)} |", "|---" * len(heads) + "|"]
    lines += [f"| {' | '.join(_cells(row))} |" for row in TABLE]
    return "\n".join(lines) + "\n"


def _cells(row: FieldRow) -> list[str]:
    elsewhere = "no effect" if row.harmless else f"400: {row.fix}" if row.fix else "400"
    neutral = ", ".join(f"`{encode(value).decode()}`" for value in row.neutral)
    return [*(_names(row.names(body)) for body in COLUMNS), _names(row.also.split()), elsewhere, neutral]


def _names(names: list[str]) -> str:
    return ", ".join(f"`{name}`" for name in names)


def page(text: str) -> str:
    """The page with the table in its place."""
    before, _, rest = text.partition(BEGIN)
    return before + BEGIN + table() + END + rest.partition(END)[2]


if __name__ == "__main__":
    PAGE.write_text(page(PAGE.read_text(encoding="utf-8")), encoding="utf-8")
