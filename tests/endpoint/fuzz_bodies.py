"""Bodies for the fuzz: valid ones of every schema, and what becomes of them in the hands of a bad client.

A body is made from a seed and a number alone, so that a finding can be made again by these two.
"""

from __future__ import annotations

import copy
import json
import math
import random
from collections.abc import Callable, Mapping
from typing import Any

from handler.schemas.openai.chat import ChatFields
from handler.schemas.openai.completion import CompletionFields
from handler.schemas.openai.sampling_fields import UNSERVED
from handler.schemas.tgi_lmi.inputs_fields import UNSERVED as INPUTS_UNSERVED
from handler.schemas.tgi_lmi.inputs_fields import Parameters

Body = dict[str, Any]

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
STREAM = ({"stream": True}, {"stream": True, "stream_options": {"include_usage": True}}, {})
# What a field may be given instead of what it takes.
STRANGE: tuple[Any, ...] = (
    None, True, False, 0, -1, 1, 2, 0.5, -0.0, 2**31, 2**53 + 1, 2**63 - 1, 2**63, 2**64, -(2**63) - 1, 10**40,
    1e308, 1e-308, 5e-324, math.nan, math.inf, -math.inf, "", "a", "0", "true", "\x00", "\ud800", "😀" * 50, " " * 300,
    "../../etc/passwd", "${jndi:x}", "%s%n{0}{}", "x" * 3000, [], {}, [[]], [None], [{}], {"": None}, {"type": "text"},
    {"a": {"b": {"c": []}}}, [0] * 300, list(range(1290)), ["a", 1, None], {"$ref": "#"}, {"type": ["object", 7]},
)  # fmt: skip
# Characters of a body that is not to grow any more.
LARGEST = 4_000_000
# A few of these, so that they do not become most of the work.
HUGE: tuple[Any, ...] = (
    "1 2 3 " * 60_000, "x" * 1_000_000, "\ud83d" * 100_000, [0] * 100_000, [[1, 2] for _ in range(30_000)],
    ["a"] * 50_000, {str(number): number for number in range(20_000)},
    [{"role": "user", "content": "a"} for _ in range(5000)],
)  # fmt: skip
STRANGE_NAMES = ("", "max_tokns", "mesages", "__proto__", "__class__", "$schema", "x" * 200, "\ud800", "temprature")
NAMES = tuple(
    sorted(
        {
            *ChatFields.__struct_fields__,
            *CompletionFields.__struct_fields__,
            *Parameters.__struct_fields__,
            *UNSERVED,
            *INPUTS_UNSERVED,
            *("input", "inputs", "parameters", "tokens", "instructions", "encoding_format", "dimensions", "adapters"),
            *("requestType", "name", "src", "model_name", "url", "tool_call_id", "max_output_tokens", "reasoning"),
        }
    )
)


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


Maker = Callable[[random.Random], Body]
# Each with its own route besides /invocations.
MAKERS: tuple[tuple[Maker, str], ...] = (
    *((chat, "/v1/chat/completions"),) * 2,
    *((completion, "/v1/completions"),) * 2,
    *((inputs, "/invocations"),) * 2,
    (responses, "/v1/responses"),
    (other, "/tokenize"),
)


def _places(value: Any, found: list[tuple[Any, Any]]) -> list[tuple[Any, Any]]:
    """Every container with each of its keys."""
    pairs = value.items() if isinstance(value, dict) else enumerate(value[:9]) if isinstance(value, list) else ()
    for key, item in pairs:
        found.append((value, key))
        _places(item, found)
    return found


def mutated(rng: random.Random, body: Body) -> Body:
    """A copy with one to three, or more, of its values replaced, dropped, wrapped, repeated or added."""
    body = copy.deepcopy(body)  # what bodies share (`SCHEMA` ...) must not tell of those before
    for _ in range(6 if rng.random() < 0.03 else rng.choice((1, 1, 1, 2, 3))):
        size = len(repr(body))
        if size > LARGEST:
            return body
        places = _places(body, [])
        kind = rng.randrange(6)
        if kind == 0 or not places:
            name = rng.choice(STRANGE_NAMES) if rng.random() < 0.2 else rng.choice(NAMES)
            body[name] = copy.deepcopy(rng.choice(STRANGE))
            continue
        container, key = rng.choice(places)
        if kind in (1, 2):
            container[key] = copy.deepcopy(rng.choice(HUGE if rng.random() < 0.005 else STRANGE))
        elif kind == 3:
            del container[key]
        elif kind == 4:
            container[key] = rng.choice(([container[key]], {"a": container[key]}, json.dumps(container[key])))
        elif isinstance(container, list):
            times = rng.choice((1, 5, 70 if size < LARGEST // 70 else 2))
            container.extend(copy.deepcopy(container[key]) for _ in range(times))
        else:
            container[rng.choice(NAMES)] = copy.deepcopy(container[key])
    return body


def encoded(rng: random.Random, body: Body) -> bytes:
    return json.dumps(body, ensure_ascii=rng.random() < 0.5).encode("utf-8", "surrogatepass")


def broken(rng: random.Random, body: bytes) -> bytes:
    """The bytes as no encoder would write them."""
    at = rng.randrange(len(body) + 1)
    deep = rng.choice((50, 600, 5000))
    return rng.choice(
        (
            lambda: body[:at],
            lambda: body[:at] + bytes([rng.randrange(256)]) + body[at + 1 :],
            lambda: (
                body[:at] + rng.choice((b"\xff\xfe", b"\xc0\x80", b"\xed\xa0\x80", b"\x00", b"\\ud800")) + body[at:]
            ),
            lambda: body + rng.choice((body, b"]", b"}", b"\n{}", b"\x00")),
            lambda: b"\xef\xbb\xbf" + body,
            lambda: body.decode("utf-8", "replace").encode("utf-16"),
            lambda: b'{"prompt": ' + b"[" * deep + b"]" * deep + b"}",
            lambda: b'{"messages": ' + b'{"a":' * deep + b"1" + b"}" * (deep + 1),
            lambda: b"[" * deep,
            lambda: b'{"prompt": "a", "seed": 1' + b"0" * deep + b"}",
            lambda: b'{"prompt": "a", "temperature": 1e%d}' % deep,
            lambda: b'{"prompt": "a", "temperature": -0.%se-999}' % (b"1" * deep),
            lambda: body.replace(b":", b": NaN,", 1),
            lambda: body.replace(b'"', b"'"),
            lambda: body[:1] + body[1:-1] + b"," + body[1:],
            lambda: rng.randbytes(rng.randrange(200)),
            lambda: b"",
        )
    )()
