"""Sequences of requests for the fuzz: two or three on one engine. A seed and a number alone make one."""

from __future__ import annotations

import copy
import json
import random
from dataclasses import dataclass

from benchmarks.fuzz.fuzz_bodies import (
    TEXTS,
    Body,
    batch,
    chat,
    completion,
    inputs,
    messages,
    other,
    pooling,
    responses,
)
from benchmarks.fuzz.fuzz_grammars import inputs_grammar, openai_fields, responses_fields
from benchmarks.fuzz.fuzz_mutations import coerced, encoded, multiplied, mutated
from benchmarks.fuzz.fuzz_requests import Sent

MAKERS = {
    "/v1/chat/completions": chat,
    "/v1/completions": completion,
    "/invocations": inputs,
    "/v1/responses": responses,
    "/tokenize": other,
    "/detokenize": other,
    "/v1/embeddings": other,
    "/v1/messages": messages,
    "/rerank": pooling,
    "/score": pooling,
    "/classify": pooling,
    "/pooling": pooling,
    "/v1/batches": batch,
}
ROUTES = (*MAKERS, "/v1/chat/completions", "/v1/completions", "/invocations")
WITH_GRAMMAR = 0.55
HEAD = "POST {path} HTTP/1.1\r\nHost: endpoint\r\nContent-Type: {kind}\r\n{more}Content-Length: {size}\r\n\r\n"


@dataclass(frozen=True, slots=True)
class FuzzStep:
    """A step of a sequence.

    :ivar requests: the requests, one after the other. Two are the same body, whole and streamed.
    :ivar messages: in place of requests: the messages of one WebSocket.
    """

    requests: tuple[Sent, ...] = ()
    messages: tuple[bytes, ...] = ()


def sequence(seed: int, number: int) -> tuple[FuzzStep, ...]:
    """The sequence with this number, of this seed."""
    rng = random.Random(f"sequence {seed}:{number}")
    steps: list[FuzzStep] = []
    route, body = _drawn(rng)
    for _ in range(rng.choice((2, 2, 3))):
        steps.append(_step(rng, route, body))
        dice = rng.random()
        if dice < 0.6:
            route, body = _drawn(rng)
        elif dice < 0.8:
            body = mutated(rng, body)
    return tuple(steps)


def _drawn(rng: random.Random) -> tuple[str, Body]:
    """A body and its own route."""
    route = rng.choice(ROUTES)
    body = copy.deepcopy(MAKERS[route](rng))
    for name in ("use_beam_search", "background"):  # their work has no end that a short sequence would see
        body.pop(name, None)
    if rng.random() < WITH_GRAMMAR:
        if route == "/invocations":
            body["parameters"]["grammar"] = inputs_grammar(rng)
        elif route == "/v1/responses":
            body |= responses_fields(rng)
        elif route in ("/v1/chat/completions", "/v1/completions"):
            body |= openai_fields(rng)
    if rng.random() < 0.2:
        body = mutated(rng, body)
    if rng.random() < 0.2:
        body = coerced(rng, body)
    if rng.random() < 0.05:
        body = multiplied(rng, body)
    return route, body


def _step(rng: random.Random, route: str, body: Body) -> FuzzStep:
    dice = rng.random()
    if dice < 0.04:
        return FuzzStep(
            messages=tuple(encoded(rng, each) for each in (body, *(_drawn(rng)[1] for _ in range(rng.randrange(2)))))
        )
    if dice < 0.09:
        return FuzzStep((_batch(rng, body),))
    path, more = route, ""
    if rng.random() < 0.4:
        path = "/invocations"
        if route.startswith("/v1/") and rng.random() < 0.5:
            more = f"X-Amzn-SageMaker-Custom-Attributes: route={route}\r\n"
    if route == "/invocations" and rng.random() < 0.4:
        more = f"X-Amzn-SageMaker-Custom-Attributes: schema={rng.choice(('tgi', 'lmi'))}\r\n"
    if rng.random() < 0.3:
        base = {name: value for name, value in body.items() if name not in ("stream", "stream_options")}
        return FuzzStep(
            tuple(_request(path, encoded(rng, base | {"stream": stream}), more) for stream in (False, True))
        )
    return FuzzStep((_request(path, encoded(rng, body), more),))


def _batch(rng: random.Random, body: Body) -> Sent:
    lines = [encoded(rng, body)]
    for _ in range(rng.randrange(4)):
        lines.append(
            rng.choice(
                (encoded(rng, _drawn(rng)[1]), b"", b"{}", b"[", json.dumps({"prompt": rng.choice(TEXTS)}).encode())
            )
        )
    rng.shuffle(lines)
    return _request("/invocations", rng.choice((b"\n", b"\r\n")).join(lines), "", "application/jsonlines")


def _request(path: str, content: bytes, more: str, kind: str = "application/json") -> Sent:
    head = HEAD.format(path=path, kind=kind, more=more, size=len(content))
    return Sent("POST", head.encode() + content, ends=False, http=True)
