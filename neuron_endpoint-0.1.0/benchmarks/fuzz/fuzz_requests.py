"""Requests for the fuzz: a body, where it goes, what its headers say, and how it is framed: truly, or not."""

from __future__ import annotations

import random
from dataclasses import dataclass

from benchmarks.fuzz.fuzz_bodies import FILES, MAKERS, Body, inputs
from benchmarks.fuzz.fuzz_mutations import broken, coerced, encoded, mutated

ROUTES = (
    "/invocations",
    "/v1/chat/completions",
    "/v1/completions",
    "/v1/responses",
    "/v1/embeddings",
    "/tokenize",
    "/detokenize",
    "/v1/messages",
    "/v1/messages/count_tokens",
    "/rerank",
    "/v1/rerank",
    "/score",
    "/classify",
    "/pooling",
    "/v1/batches",
    FILES,
)
ODD_ROUTES = (
    "/adapters", "/adapters/a", "/adapters/%ff%00", "/models", "/models/a/invoke", "/v1/models", "/ping", "/metrics",
    "/execution-parameters", "/openapi.json", "/invocations-bidirectional-stream", "/", "//invocations",
    "/invocations/",
    "/invocations?x=%zz", "/%2e%2e/etc/passwd", "/v1/chat/completions/", "/v1/nowhere", "/adapters?limit=-1",
    "/v1/files/x", "/v1/files/file-" + "0" * 32 + "/content", "/v1/files?limit=0", "/v1/files?after=%ff&order=x",
    "/v1/batches/x", "/v1/batches/batch_" + "0" * 32 + "/cancel", "/v1/batches?limit=-1", "/v1/files/..%2f..%2fx",
    "/adapters?limit=%C2%B2&next_page_token=99999999999", "*", "http://x/invocations", "/page/state", "/caf\xe9",
)  # fmt: skip
METHODS = ("GET", "PUT", "DELETE", "PATCH", "HEAD", "OPTIONS", "TRACE", "BREW", "POST")
TYPES = ("application/jsonlines", "application/vnd.api+json", "application/json; charset=utf-8")
ODD_TYPES = (
    "", "text/plain", "application/x-www-form-urlencoded", "multipart/form-data", "application/json; charset=utf-16",
    "application/json; charset=" + "x" * 200, "application/jsonlines; charset=latin-1", "json", "\xff/\xff", ";",
)  # fmt: skip
ATTRIBUTES = (
    "schema=tgi", "schema=lmi", "schema=chat", "schema=completion", "schema=", "schema=x", "route=/v1/responses",
    "route=/v1/chat/completions", "route=/tokenize", "route=../x", "trace_id=" + "t" * 900, ";;;=;",
    "schema=tgi;schema=lmi", "\xe9\xff", "traceparent=00-zz", "a" * 3000,
)  # fmt: skip
HEADERS = (
    ("Accept", ("application/jsonlines", "text/event-stream", "*/*;q=x", "\xff", "a/b, c/d;q=0, ;", "x" * 4000)),
    ("X-Amzn-SageMaker-Custom-Attributes", ATTRIBUTES),
    ("X-Amzn-SageMaker-Adapter-Identifier", ("a", "sample", "\xe9", "../..", "x" * 2000)),
    ("X-Amzn-SageMaker-Session-Id", ("NEW_SESSION", "a", "\xff", "x" * 2000)),
    ("X-Amzn-SageMaker-Inference-Id", ("id", "\xff", "x" * 2000)),
    # No short ones: a deadline that is met is answered by 504, and rightly so.
    ("X-Amzn-SageMaker-InvocationTimeoutSeconds", ("0", "-1", "abc", "1e3", "\xb2", "9" * 50, "300")),
    ("traceparent", (f"00-{'0' * 32}-{'0' * 16}-01", f"00-{'a' * 32}-{'b' * 16}-01", "x", "--" * 99)),
    ("tracestate", ("a=b", "=,=,", "\xff" * 100)),
    ("X-Request-Id", ("id", "\xff")),
    ("X-data-parallel-rank", ("7", "x")),
    ("Expect", ("100-continue", "x")),
    ("Accept-Encoding", ("gzip", "x")),
    ("Content-Encoding", ("gzip",)),
    ("Connection", ("close", "upgrade")),
    ("Upgrade", ("websocket", "h2c")),
    ("a_b", ("1",)),
    ("Host", ("", "x:y", "\xff", "a b")),
    ("x" * 300, ("y" * 9000,)),
)  # fmt: skip
BOUNDARY = "fuzz"
# Bytes of white space behind some bodies, which change nothing of them, and more often where the head is damaged.
LARGE = (100_000, 6_000_000)


@dataclass(frozen=True, slots=True)
class Sent:
    """One request.

    :param raw: its bytes.
    :param ends: nothing follows: the client closes its side, so that what was promised and not sent is missed.
    :param http: it is HTTP as it should be, so that the connection goes on.
    """

    method: str
    raw: bytes
    ends: bool
    http: bool


def sent(seed: int, number: int) -> Sent:
    """The request with this number, of this seed."""
    rng = random.Random(f"{seed}:{number}")
    make, own = rng.choice(MAKERS)
    body = make(rng)
    if rng.random() < 0.5:
        body = mutated(rng, body)
    if rng.random() < 0.1:
        body = coerced(rng, body)
    content = encoded(rng, body)
    headers: list[tuple[str, str]] = []
    kind = "application/json"
    if rng.random() < 0.1:
        kind = rng.choice(TYPES)
        if kind == "application/jsonlines":
            content += b"\n" + encoded(rng, mutated(rng, inputs(rng))) + b"\n" + encoded(rng, inputs(rng))
    elif rng.random() < 0.05:
        kind = rng.choice(ODD_TYPES)
    elif own == FILES:
        kind, content = f"multipart/form-data; boundary={BOUNDARY}", _form(rng, body)
    if kind:
        headers.append(("Content-Type", kind))
    if rng.random() < 0.12:
        content = broken(rng, content)
    if rng.random() < 0.15:
        for name, values in rng.sample(HEADERS, rng.randrange(1, 4)):
            headers.append((name, rng.choice(values)))
    where = rng.random()
    method, path = "POST", "/invocations" if where < 0.65 else own if where < 0.9 else rng.choice(ROUTES)
    if where > 0.95:
        path = rng.choice(ODD_ROUTES)
    if rng.random() < 0.03:
        method = rng.choice(METHODS)
    return _framed(rng, method, path, headers, content)


def _form(rng: random.Random, body: Body) -> bytes:
    """A form with the fields of a body; `file` is a file."""
    parts = b""
    for name, value in body.items():
        more = '; filename="input.jsonl"' if name == "file" else ""
        head = f'--{BOUNDARY}\r\nContent-Disposition: form-data; name="{name}"{more}\r\n\r\n'
        parts += head.encode(errors="replace") + (value if isinstance(value, str) else repr(value)).encode(
            errors="replace"
        )
        parts += b"\r\n"
    return parts + rng.choice((f"--{BOUNDARY}--\r\n", f"--{BOUNDARY}--\r\n", "", "--")).encode()


def _framed(rng: random.Random, method: str, path: str, headers: list[tuple[str, str]], content: bytes) -> Sent:
    version, ends, http = "HTTP/1.1", False, True
    names = [name.lower() for name, _ in headers]
    if "host" not in names:
        headers.append(("Host", "endpoint"))
    framing = rng.random()
    if rng.random() < (0.1 if framing >= 0.95 else 0.003):
        content += b" " * rng.randrange(*LARGE)
    if framing < 0.9:
        headers.append(("Content-Length", str(len(content))))
    elif framing < 0.95:
        headers.append(("Transfer-Encoding", "chunked"))
        content = _chunked(rng, content)
    else:
        ends = True
        lie = rng.randrange(9)
        if lie == 0:
            headers.append(("Content-Length", str(len(content) + rng.randrange(1, 1000))))
        elif lie == 1:
            headers.append(("Content-Length", str(rng.randrange(len(content) + 1))))
        elif lie == 2:
            headers.append(("Content-Length", rng.choice(("-1", "abc", "1e3", "", "0x10", "9" * 30, "+5", "\xb2"))))
        elif lie == 3:
            headers += [("Content-Length", str(len(content)))] * 2
        elif lie == 4:
            headers += [("Content-Length", str(len(content))), ("Transfer-Encoding", "chunked")]
            content = _chunked(rng, content)
        elif lie == 5:
            headers.append(("Transfer-Encoding", "chunked"))
            whole = _chunked(rng, content)
            content = whole[: rng.randrange(len(whole))]
        elif lie == 6:
            headers.append(("Transfer-Encoding", "chunked"))
            content = rng.choice(
                (
                    b"zz\r\n",
                    b"-5\r\na\r\n",
                    b"5\r\nab",
                    b"3;\x00\r\nabc\r\n0\r\n\r\n",
                    b"3\r\nabcd\r\n0\r\n\r\n",
                    b"f" * 40,
                )
            )
        elif lie == 7:
            headers.append(("Transfer-Encoding", rng.choice(("gzip", "identity", "chunked, gzip", "x"))))
        else:
            version = rng.choice(("HTTP/1.0", "HTTP/9.9", "HTTP/1.1 ", "SPDY/3"))
            headers.append(("Content-Length", str(len(content))))
        http = False
    lines = [f"{method} {path} {version}", *(f"{name}: {value}" for name, value in headers)]
    return Sent(method, "\r\n".join([*lines, "", ""]).encode("latin-1") + content, ends, http)


def _chunked(rng: random.Random, content: bytes) -> bytes:
    size = rng.choice((1, 7, 100, 5000))
    parts = [content[at : at + size] for at in range(0, len(content), size)][:500]
    return b"".join(b"%x\r\n%s\r\n" % (len(part), part) for part in parts) + b"0\r\n\r\n"
