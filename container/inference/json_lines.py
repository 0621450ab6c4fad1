"""Answers a JSON Lines body with JSON Lines, in the same order. Batch transform splits and joins by line."""

from __future__ import annotations

from container.http.exchange import Exchange
from container.requests.deadline import Deadline
from container.requests.error_responses import unexpected
from handler.engine.core_queue import GROUP, RequestGroup
from handler.engine.engine import Engine
from handler.engine.event_loop import WorkThreads
from handler.schemas.batch import Batch
from handler.schemas.dispatch import Parse
from handler.schemas.reply import JSON_LINES, RunningCall
from handler.schemas.request_fields import MAX_UNKNOWN


async def answer_lines(
    exchange: Exchange,
    engine: Engine,
    parse: Parse,
    lines: list[bytes],
    deadline: Deadline,
    threads: WorkThreads,
    line_end: bytes,
) -> None:
    """Answers a body of several lines. They share the slots of one request.

    :param line_end: ends the last line.
    :raises EndpointError: the engine failed, so that the client tries again instead of storing errors.
    """

    def begin(call: RunningCall) -> None:
        try:
            call.begin(deadline.remaining(), deadline.error())
        except Exception as error:
            call.fail(unexpected(error))  # the other lines go on

    GROUP.set(RequestGroup())  # in the context of the task that answers this request
    batch = Batch(
        engine,
        parse,
        engine.slots,
        deadline.remaining,
        deadline.error(),
        begin,
        threads.run,
    )
    exchange.left = batch.leave
    replies = await batch.run(lines)
    if replies is None:
        return
    exchange.record.ignored = tuple(batch.ignored)[:MAX_UNKNOWN]
    exchange.headers.extend(exchange.record.ignored_header)
    exchange.send(200, (("Content-Type", JSON_LINES),), b"\n".join(replies) + line_end)
