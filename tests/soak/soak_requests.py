"""The requests of a soak test: every API, streamed and whole, and wrong bodies. A random generator selects them."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from random import Random
from typing import Any

FINE = range(200, 201)
REFUSED = range(400, 500)
EITHER = range(200, 500)  # it may still mean something: only 5xx would be wrong
CHAT = "/v1/chat/completions"
USAGE, GENERATED, DONE = b'"usage"', b'"generated_text"', b"data: [DONE]\n\n"
QUESTIONS = ("What does /ping mean?", "What is Trainium?", "Say: ünïcödé 日本語 🙂.", "How do I deploy a model?")
# A grammar is compiled once and kept by the engine's core: clients that send a new one each time fill its cache
# (VLLM_XGRAMMAR_CACHE_MB, 512 MB), which is no leak and would look like one.
SCHEMAS = tuple(
    {"type": "object", "properties": {name: {"enum": [1, 2]}}, "required": [name], "additionalProperties": False}
    for name in ("status", "stage", "queue", "slots")
)


@dataclass(frozen=True, slots=True)
class SoakRequest:
    """One request.

    :ivar mark: what a whole reply with status 200 contains.
    """

    kind: str
    path: str
    body: bytes
    statuses: range = FINE
    mark: bytes = b""
    headers: tuple[tuple[str, str], ...] = ()
    content_type: str = "application/json"


Maker = Callable[[Random], SoakRequest]


def question(pick: Random) -> str:
    """Returns a prompt of up to about 300 tokens. No two have the same beginning, so no prefix cache applies."""
    return f"{pick.randrange(10**6)} " + "and so on " * pick.choice((0, 0, 0, 5, 60)) + pick.choice(QUESTIONS)


def limits(pick: Random) -> dict[str, Any]:
    return {"max_tokens": pick.randint(1, 48), "temperature": pick.choice((0, 0, 1)), "ignore_eos": pick.random() < 0.5}


def json_request(
    kind: str, path: str, document: Mapping[str, Any], stream: bool, mark: bytes = b"", **more: Any
) -> SoakRequest:
    body = json.dumps({**document, "stream": True} if stream else document).encode()
    return SoakRequest(f"{kind}, {'streamed' if stream else 'whole'}", path, body, FINE, mark, **more)


def whole_or_streamed(
    pick: Random, kind: str, path: str, document: Mapping[str, Any], mark: bytes, end: bytes, **more: Any
) -> SoakRequest:
    """Returns a request that is streamed in 6 of 10 cases.

    :param mark: what a whole reply contains.
    :param end: what a streamed reply contains.
    """
    stream = pick.random() < 0.6
    return json_request(kind, path, document, stream, end if stream else mark, **more)


def chat(pick: Random) -> SoakRequest:
    document = {"messages": [{"role": "user", "content": question(pick)}], **limits(pick)}
    return whole_or_streamed(pick, "chat", CHAT, document, USAGE, DONE)


def completion(pick: Random) -> SoakRequest:
    document = {"prompt": question(pick), **limits(pick)}
    return whole_or_streamed(pick, "completion", "/v1/completions", document, USAGE, DONE)


def full_path(pick: Random) -> SoakRequest:
    """Returns a request that vLLM's own serving classes handle."""
    schema = {"type": "json_schema", "json_schema": {"name": "fixed", "schema": pick.choice(SCHEMAS)}}
    extra = pick.choice(
        (
            {"logprobs": True, "top_logprobs": 2},
            {"n": 2, "temperature": 1},
            {"response_format": schema, "ignore_eos": False},
        )
    )
    document = {"messages": [{"role": "user", "content": question(pick)}], **limits(pick), **extra}
    return whole_or_streamed(pick, "serving classes", CHAT, document, USAGE, DONE)


def responses(pick: Random) -> SoakRequest:
    document = {"input": question(pick), "max_output_tokens": pick.randint(1, 32), "temperature": 0, "store": False}
    return whole_or_streamed(pick, "responses", "/v1/responses", document, b'"output"', b'"output_tokens"')


def tokenize(pick: Random) -> SoakRequest:
    return json_request("tokenize", "/tokenize", {"prompt": question(pick)}, False, b'"tokens"')


def lmi(pick: Random) -> SoakRequest:
    document = {"inputs": question(pick), "parameters": {"max_new_tokens": pick.randint(1, 48), "details": True}}
    return whole_or_streamed(pick, "LMI", "/invocations", document, GENERATED, GENERATED)


def tgi(pick: Random) -> SoakRequest:
    document = {"inputs": question(pick), "parameters": {"max_new_tokens": pick.randint(1, 48), "do_sample": True}}
    headers = (("X-Amzn-SageMaker-Custom-Attributes", "schema=tgi;trace_id=soak"),)
    return whole_or_streamed(pick, "TGI", "/invocations", document, GENERATED, GENERATED, headers=headers)


def lines(pick: Random) -> SoakRequest:
    """Returns a batch transform request: one body per line, one of them wrong."""
    bodies = [json.dumps({"prompt": question(pick), "max_tokens": pick.randint(1, 16)}) for _ in range(3)]
    body = "\n".join([*bodies, '{"prompt": 7}']).encode()
    return SoakRequest("JSON lines", "/invocations", body, FINE, b'"error"', content_type="application/jsonlines")


def large(pick: Random) -> SoakRequest:
    """Returns a request for a stream of several hundred kB, for clients that do not read it."""
    document = {
        "prompt": question(pick),
        "max_tokens": pick.randint(100, 300),
        "logprobs": 5,
        "ignore_eos": True,
        "temperature": 1,
    }
    return json_request("large", "/v1/completions", document, True, DONE)


def one_of_each_size(sizes: int, pick: Random) -> list[SoakRequest]:
    """Prompts of 1 to `sizes` tokens, shuffled, that no prefix cache knows, for one token each.

    PyTorch on CPU keeps kernels for every number of rows that it ever multiplied (oneDNN): the core's memory grows with
    each number of tokens that a step has for the first time, and not with requests.
    """
    prompts = [[pick.randrange(5, 1000) for _ in range(size)] for size in range(1, sizes + 1)]
    pick.shuffle(prompts)
    return [json_request("sizes", "/v1/completions", {"prompt": one, "max_tokens": 1}, False, USAGE) for one in prompts]


WRONG = (
    b"",
    b"hello",
    b"[1, 2]",
    b"{}",
    b'{"prompt": "\xff\xfe"}',
    b'{"prompt": "\\ud800"}',
    b'{"messages": ' + b"[" * 5000 + b"]" * 5000 + b"}",
    b'{"prompt": "a", "temperature": NaN}',
    b'{"prompt": "a", "max_tokens": -1}',
    b'{"prompt": "a", "max_tokns": 5}',
    b'{"prompt": [1, 99999999]}',
    b'{"prompt": "a", "structured_outputs": {"grammar": "root ::="}}',
    b'{"inputs": "a", "parameters": {"watermark": true}}',
    json.dumps({"prompt": "hello " * 5000}).encode(),
)


def wrong(pick: Random) -> SoakRequest:
    return SoakRequest("wrong bodies", "/invocations", pick.choice(WRONG), REFUSED)


def damaged(pick: Random) -> SoakRequest:
    """Returns a valid body with some bytes removed or changed."""
    good = pick.choice((chat, completion, full_path, lmi))(pick)
    body = bytearray(good.body)
    for _ in range(pick.randint(1, 3)):
        at = pick.randrange(len(body))
        if pick.random() < 0.5:
            body[at] = pick.randrange(256)
        else:
            del body[at : at + pick.randint(1, 20)]
            if not body:
                break
    return SoakRequest("damaged bodies", good.path, bytes(body), EITHER)


OPENAI: Mapping[Maker, int] = {chat: 6, completion: 6, full_path: 4, responses: 1, tokenize: 1}
OURS: Mapping[Maker, int] = {**OPENAI, lmi: 4, tgi: 3, lines: 1, wrong: 3, damaged: 2}
