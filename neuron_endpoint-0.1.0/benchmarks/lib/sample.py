"""One request as the client saw it, parsed from its raw reply."""

from __future__ import annotations

from dataclasses import dataclass

import msgspec

from benchmarks.lib.http_client import ClientReply
from benchmarks.lib.reply_reader import server_sent_events
from benchmarks.lib.request_mix import RequestMix


@dataclass(frozen=True, slots=True)
class Sample:
    """Times are CLOCK_MONOTONIC seconds."""

    sent: float
    end: float
    status: int
    tokens: int = 0  # as the reply's `usage` counts them: an event may carry several
    events: int = 0  # that carried text
    arrivals: tuple[float, ...] = ()  # socket reads that completed at least one event with text
    error: str | None = None


class _Message(msgspec.Struct):
    content: str | None = None


class _Choice(msgspec.Struct):
    delta: _Message | None = None
    message: _Message | None = None
    text: str | None = None

    @property
    def content(self) -> str:
        message = self.delta or self.message
        return (message.content if message else self.text) or ""


class _Usage(msgspec.Struct):
    completion_tokens: int = 0


class _Document(msgspec.Struct):
    choices: list[_Choice] = []
    usage: _Usage | None = None
    error: msgspec.Raw = msgspec.Raw(b"null")


class _Wrong(Exception):
    """The reply is not what was requested."""


_DOCUMENT = msgspec.json.Decoder(_Document)


def read_reply(reply: ClientReply, workload: RequestMix) -> Sample:
    """Checks a reply. Another status than 200, an error object, a missing end mark and too few tokens are failures."""
    tokens, events, error = 0, 0, None
    arrivals: list[float] = []
    try:
        if reply.status != 200:
            raise _Wrong(f"status {reply.status}: {reply.body[:200].decode(errors='replace')}")
        if workload.streamed:
            tokens, events, arrivals = _read_stream(reply)
        else:
            document = _decode(reply.body)
            tokens = document.usage.completion_tokens if document.usage else 0
            if not any(choice.content for choice in document.choices):
                raise _Wrong("no text")
        if tokens != workload.tokens:
            raise _Wrong(f"asked for {workload.tokens} tokens, usage says {tokens}")
    except _Wrong as wrong:
        error = str(wrong)
    return Sample(reply.sent, reply.end, reply.status, tokens, events, tuple(arrivals), error)


def _read_stream(reply: ClientReply) -> tuple[int, int, list[float]]:
    tokens, events, finished = 0, 0, False
    arrivals: list[float] = []
    for when, data in server_sent_events(reply.arrivals):
        if finished:
            raise _Wrong("an event after [DONE]")
        if data == b"[DONE]":
            finished = True
            continue
        document = _decode(data)
        if document.usage:
            tokens = document.usage.completion_tokens
        if any(choice.content for choice in document.choices):
            events += 1
            if not arrivals or arrivals[-1] != when:
                arrivals.append(when)
    if not finished:
        raise _Wrong("the stream ended without [DONE]")
    if not arrivals:
        raise _Wrong("no text")
    return tokens, events, arrivals


def _decode(data: bytes) -> _Document:
    try:
        document = _DOCUMENT.decode(data)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise _Wrong(f"not the JSON of a reply ({error}): {data[:120]!r}") from None
    if bytes(document.error) != b"null":
        raise _Wrong(f"an error object under status 200: {bytes(document.error)[:200].decode(errors='replace')}")
    return document
