"""Valid bodies of every schema, drawn by a random generator."""

from __future__ import annotations

import copy
import json
import random
from collections.abc import Callable, Mapping
from typing import Any

Body = dict[str, Any]
# The route whose bodies are forms.
FILES = "/v1/files"

TEXTS = ("What does /ping mean?", "Hello", "a", "Ünïcödé 😀 你好", "<|end|><|user|>", "line\nline", "1 2 3 " * 20)
TOOL = {
    "type": "function",
    "function": {
        "name": "weather",
        "description": "Tells the weather.",
        "parameters": {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]},
    },
}
SCHEMA = {"type": "object", "properties": {"a": {"type": "integer"}}, "required": ["a"], "additionalProperties": False}
IMAGE = {"type": "image_url", "image_url": {"url": "data:image/png;base64,iVBORw0KGgo="}}
# What takes a body the full way, through vLLM's serving classes.
FULL: Mapping[str, tuple[Any, ...]] = {
    "logprobs": (True, 2),
    "top_logprobs": (2,),
    "prompt_logprobs": (1,),
    "logit_bias": ({"7": 1.5},),
    "response_format": (
        {"type": "json_object"},
        {"type": "json_schema", "json_schema": {"name": "s", "schema": SCHEMA}},
    ),
    "structured_outputs": ({"choice": ["yes", "no"]}, {"regex": "[a-z]{1,3}"}, {"json": SCHEMA}),
    "guided_choice": (["a", "b"],),
    "tools": ([TOOL],),
    "tool_choice": ("auto", "required", {"type": "function", "function": {"name": "weather"}}),
    "echo": (True,),
    "use_beam_search": (True,),
    "length_penalty": (0.5,),
    "allowed_token_ids": ([1, 2, 3],),
    "bad_words": (["no"],),
    "truncate_prompt_tokens": (3,),
    "documents": ([{"title": "t", "text": "x"}],),
    "return_token_ids": (True,),
    "cache_salt": ("salt",),
    "request_id": ("id-1",),
    "n": (2, 3),
    "vllm_xargs": ({"a": 1},),
    "reasoning_effort": ("low",),
}
STREAM: tuple[Body, ...] = ({"stream": True}, {"stream": True, "stream_options": {"include_usage": True}}, {})


def _message(rng: random.Random) -> Body:
    content: Any = rng.choice(TEXTS)
    if rng.random() < 0.2:
        content = [{"type": "text", "text": content}, *([IMAGE] if rng.random() < 0.3 else [])]
    return {"role": rng.choice(("user", "user", "user", "system", "assistant", "developer")), "content": content}


def _sampling(rng: random.Random) -> Body:
    every: Body = {
        "temperature": rng.choice((0, 0.7, 1)),
        "top_p": 0.9,
        "top_k": 5,
        "min_p": 0.1,
        "seed": rng.randrange(100),
        "stop": rng.choice((["."], "\n", [])),
        "min_tokens": 1,
        "frequency_penalty": 0.5,
        "presence_penalty": 0.5,
        "repetition_penalty": 1.1,
        "ignore_eos": True,
        "skip_special_tokens": False,
        "stop_token_ids": [3],
        "model": rng.choice(("sample", "sample", "", "other")),
    }
    return {name: every[name] for name in rng.sample(sorted(every), rng.randrange(4))}


def _full(rng: random.Random) -> Body:
    if rng.random() < 0.5:
        return {}
    return {name: copy.deepcopy(rng.choice(FULL[name])) for name in rng.sample(sorted(FULL), rng.choice((1, 1, 2)))}


def chat(rng: random.Random) -> Body:
    messages = [_message(rng) for _ in range(rng.randrange(1, 4))]
    limit = rng.choice(("max_tokens", "max_tokens", "max_completion_tokens"))
    return {"messages": messages, limit: rng.randrange(1, 5), **_sampling(rng), **rng.choice(STREAM), **_full(rng)}


def completion(rng: random.Random) -> Body:
    prompt = rng.choice((rng.choice(TEXTS), [1, 2, 3], [[1, 2], [3]], ["a", "b"], ["a"]))
    return {"prompt": prompt, "max_tokens": rng.randrange(1, 5), **_sampling(rng), **rng.choice(STREAM), **_full(rng)}


def inputs(rng: random.Random) -> Body:
    every: Body = {
        "do_sample": True,
        "temperature": 0.7,
        "top_p": 0.9,
        "seed": 7,
        "stop": ["."],
        "details": True,
        "top_n_tokens": 2,
        "decoder_input_details": True,
        "best_of": 2,
        "return_full_text": True,
        "truncate": 3,
        "grammar": rng.choice(({"type": "regex", "value": "[a-z]+"}, {"type": "json", "value": SCHEMA})),
        "output_formatter": rng.choice(("json", "jsonlines", "sse")),
        "watermark": False,
        "adapter_id": "none",
    }
    chosen = {name: every[name] for name in rng.sample(sorted(every), rng.randrange(5))}
    given = rng.choice((rng.choice(TEXTS), rng.choice(TEXTS), ["a", "b"], [_message(rng)]))
    return {
        "inputs": given,
        "parameters": {"max_new_tokens": rng.randrange(1, 5), **chosen},
        "stream": rng.random() < 0.3,
    }


def responses(rng: random.Random) -> Body:
    given = rng.choice((rng.choice(TEXTS), [_message(rng)], [{"type": "message", **_message(rng)}]))
    every: Body = {
        "instructions": "Be short.",
        "tools": [{"type": "function", **TOOL["function"]}],  # type: ignore[dict-item]
        "text": {"format": {"type": "json_schema", "name": "s", "schema": SCHEMA}},
        "temperature": 0.5,
        "store": False,
        "previous_response_id": "resp_1",
        "background": True,
        "reasoning": {"effort": "low"},
        "include": ["message.output_text.logprobs"],
        "top_logprobs": 2,
    }
    chosen = {name: every[name] for name in rng.sample(sorted(every), rng.randrange(4))}
    return {"input": given, "max_output_tokens": rng.randrange(1, 5), "stream": rng.random() < 0.4, **chosen}


def other(rng: random.Random) -> Body:
    return copy.deepcopy(
        rng.choice(
            (
                {"input": rng.choice(TEXTS), "encoding_format": "float"},
                {"prompt": rng.choice(TEXTS), "add_special_tokens": True, "return_token_strs": True},
                {"messages": [_message(rng)], "add_generation_prompt": True},
                {"tokens": [1, 2, 3]},
                {"name": "a", "src": "/nowhere"},
                {"model_name": "a", "url": "/nowhere"},
                {"requestType": "NEW_SESSION"},
                {},
            )
        )
    )


def messages(rng: random.Random) -> Body:
    """A body of Anthropic's Messages API."""
    every: Body = {
        "system": rng.choice(("Be short.", [{"type": "text", "text": "Be short."}])),
        "temperature": 0.5,
        "top_k": 3,
        "stop_sequences": ["."],
        "tools": [{"name": "weather", "input_schema": TOOL["function"]["parameters"]}],  # type: ignore[index]
        "tool_choice": rng.choice(({"type": "auto"}, {"type": "any"}, {"type": "tool", "name": "weather"})),
        "output_config": {"format": {"type": "json_schema", "schema": SCHEMA}},
        "thinking": {"type": "enabled", "budget_tokens": 1024},
        "metadata": {"user_id": "u"},
        "anthropic_version": "bedrock-2023-05-31",
    }
    turns = [
        {"role": "user", "content": rng.choice((rng.choice(TEXTS), [{"type": "text", "text": "a"}]))},
        {"role": "assistant", "content": [{"type": "tool_use", "id": "t", "name": "weather", "input": {"city": "a"}}]},
        {"role": "user", "content": [{"type": "tool_result", "tool_use_id": "t", "content": "rain"}]},
    ]
    chosen = {name: every[name] for name in rng.sample(sorted(every), rng.randrange(4))}
    return copy.deepcopy(
        {
            "model": "sample",
            "messages": turns[: rng.choice((1, 1, 3))],
            "max_tokens": rng.randrange(1, 5),
            "stream": rng.random() < 0.3,
            **chosen,
        }
    )


def pooling(rng: random.Random) -> Body:
    """A body of the routes that score, rerank, classify and pool. The sample model generates text, and has none."""
    return copy.deepcopy(
        rng.choice(
            (
                {"query": rng.choice(TEXTS), "documents": [*TEXTS[:3]], "top_n": 2},
                {"query": "a", "documents": [{"text": "b"}, "c"], "return_documents": True},
                {"text_1": rng.choice(TEXTS), "text_2": [*TEXTS[:2]]},
                {"queries": ["a"], "items": ["b"]},
                {"data_1": "a", "data_2": ["b"]},
                {"input": rng.choice(TEXTS), "activation": False, "task": "classify"},
                {"messages": [_message(rng)], "truncate_prompt_tokens": 3},
            )
        )
    )


def batch(rng: random.Random) -> Body:
    return {
        "input_file_id": rng.choice(("file-" + "0" * 32, "file-1")),
        "endpoint": rng.choice(("/v1/chat/completions", "/v1/completions", "/v1/embeddings")),
        "completion_window": "24h",
        "metadata": {"a": "b"},
    }


def batch_lines(rng: random.Random) -> Body:
    """The parts of a form that uploads the input of a batch."""
    line = {"custom_id": "1", "method": "POST", "url": "/v1/chat/completions", "body": chat(rng)}
    return {"purpose": "batch", "file": json.dumps(line)}


Maker = Callable[[random.Random], Body]
# Each with its own route besides /invocations.
MAKERS: tuple[tuple[Maker, str], ...] = (
    *((chat, "/v1/chat/completions"),) * 2,
    *((completion, "/v1/completions"),) * 2,
    *((inputs, "/invocations"),) * 2,
    (responses, "/v1/responses"),
    (other, "/tokenize"),
    (messages, "/v1/messages"),
    (messages, "/v1/messages/count_tokens"),
    (pooling, "/rerank"),
    (pooling, "/score"),
    (pooling, "/classify"),
    (pooling, "/pooling"),
    (batch, "/v1/batches"),
    (batch_lines, FILES),
)
