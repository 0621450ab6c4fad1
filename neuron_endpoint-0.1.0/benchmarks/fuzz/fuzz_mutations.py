"""Turns valid bodies into what a bad client sends: strange values, missing and additional fields, broken bytes."""

from __future__ import annotations

import copy
import json
import math
import random
from typing import Any

from benchmarks.fuzz.fuzz_bodies import Body
from handler.schemas.request_fields import TABLE

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
            *(name for row in TABLE for name in row.every_name()),
            *("tokens", "encoding_format", "dimensions", "requestType", "name", "src", "model_name", "url"),
            "tool_call_id",
        }
    )
)


def places(value: Any, found: list[tuple[Any, Any]]) -> list[tuple[Any, Any]]:
    """Every container with each of its keys."""
    pairs = value.items() if isinstance(value, dict) else enumerate(value[:9]) if isinstance(value, list) else ()
    for key, item in pairs:
        found.append((value, key))
        places(item, found)
    return found


def mutated(rng: random.Random, body: Body) -> Body:
    """A copy with one to three, or more, of its values replaced, dropped, wrapped, repeated or added."""
    body = copy.deepcopy(body)  # what bodies share (`SCHEMA` ...) must not tell of those before
    for _ in range(6 if rng.random() < 0.03 else rng.choice((1, 1, 1, 2, 3))):
        size = len(repr(body))
        if size > LARGEST:
            return body
        found = places(body, [])
        kind = rng.randrange(6)
        if kind == 0 or not found:
            name = rng.choice(STRANGE_NAMES) if rng.random() < 0.2 else rng.choice(NAMES)
            body[name] = copy.deepcopy(rng.choice(STRANGE))
            continue
        container, key = rng.choice(found)
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


def coerced(rng: random.Random, body: Body) -> Body:
    """A copy in which some numbers are what a converter makes the same number of, or another one."""
    body = copy.deepcopy(body)
    numbers = [(container, key) for container, key in places(body, []) if type(container[key]) in (int, float, bool)]
    for container, key in rng.sample(numbers, min(len(numbers), rng.choice((1, 1, 2, 4)))):
        value = container[key]
        if not isinstance(value, int | float):  # One list can be there several times: its number was changed already.
            continue
        container[key] = rng.choice(
            (str(value), f"-{abs(value) + 7}", f" {value} ", float(value), bool(value), None, "nan", "1e9", [value])
        )
    return body


def multiplied(rng: random.Random, body: Body) -> Body:
    """A copy in which small counts multiply: sequences, prompts, tokens, log probabilities, copied fields."""
    body = copy.deepcopy(body)
    ids = [5 + rng.randrange(400) for _ in range(rng.choice((10, 300, 1000)))]
    factors: tuple[Body, ...] = (
        {"n": rng.choice((8, 64, 128))},
        {"max_tokens": rng.choice((64, 400)), "ignore_eos": True},
        {"logprobs": rng.choice((1, 20, True)), "top_logprobs": rng.choice((5, 20))},
        {"prompt_logprobs": rng.choice((1, 20))},
        {"echo": True},
        {"allowed_token_ids": list(range(rng.choice((100, 30_000))))},
        {"cache_salt": "x" * rng.choice((1000, 2_000_000))},
        {"stop": [f"stop {number}" for number in range(60)]},
        {"prompt": [ids] * rng.choice((2, 16, 64))} if "prompt" in body else {},
    )
    for factor in rng.sample(factors, rng.choice((2, 3, 4))):
        body |= factor
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
