"""Runs a body that may have ended an engine alone, before it runs beside others again."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from container.http.exchange import Exchange
from container.inference.sinks import CallSink, Client
from container.recovery.recovery import Recovery
from container.requests.deadline import Deadline
from container.requests.request_record import RequestRecord
from container.service import Service
from handler.engine.core_queue import GROUP, RequestGroup
from handler.engine.engine import Engine
from handler.engine.event_loop import WorkThreads
from handler.engine.generation.generation import StopReason
from handler.errors import ClientError, DeadlineExceeded, EndpointError, EngineFailed
from handler.schemas.dispatch import Parse
from handler.schemas.framing import body_size
from handler.schemas.json_body import decode
from handler.schemas.reply import AnyCall


class TrialSink(CallSink):
    """The sink of a call whose reply nobody reads. It has ended when each of the call's sequences has a token."""

    def push(self, text: str, token_ids: Sequence[int], finish_reason: str | None, stop_reason: StopReason) -> None:
        if finish_reason is not None:
            self.end()


async def try_suspect(
    recovery: Recovery,
    engine: Engine,
    parse: Parse,
    bodies: Sequence[bytes],
    record: RequestRecord,
    limit: Deadline,
    threads: WorkThreads,
    client: Client,
    read: Callable[[bytes], Mapping[str, Any]] = decode,
) -> None:
    """Tries a request alone if its body was in an engine that died.

    :param bodies: the request's body, or its lines.
    :param read: decodes a body.
    :raises BodyQuarantined: the engine has died of it.
    :raises DeadlineExceeded: it did not get that far, perhaps because others did not end.
    """
    if not recovery.suspected(record):
        return
    died = False
    for body in bodies:
        try:
            call = await threads.run(body_size(body, engine), lambda body: parse(read(body), engine), body)
            error = await _tried_alone(engine, call, limit, client)
        except ClientError:
            continue  # the request itself ends with it
        if isinstance(error, DeadlineExceeded) or (error is None and not client.open):
            recovery.tried(record, died=False, ran=False)
            if error is not None:
                raise error
            return
        died = isinstance(error, EngineFailed) and error.in_core and not engine.was_killed()
        if isinstance(error, EngineFailed):
            break
    recovery.tried(record, died=died)


def code_ended(service: Service, exchange: Exchange, errors: Sequence[EndpointError]) -> None:
    """Call when the model's own code has answered a request, or failed: `try_suspect` and `_failed` in one.

    A suspected body has run alone to its end, because code runs once.

    :param errors: what the engine raised in it.
    :raises BodyQuarantined: the engine has died of it alone.
    """
    recovery, record, engine = service.recovery, exchange.record, service.engine
    failure = next((error for error in errors if isinstance(error, EngineFailed)), None)
    died = failure is not None and failure.in_core and engine is not None and not engine.was_killed()
    if recovery.suspected(record):
        late = any(isinstance(error, DeadlineExceeded) for error in errors)
        recovery.tried(record, died=died, ran=died or not (late or failure))
    recovery.failed(failure, record, exchange.head.environ)


async def _tried_alone(engine: Engine, call: AnyCall, limit: Deadline, client: Client) -> EndpointError | None:
    """Runs a call until each of its sequences has a token, or its client has left. Returns its error."""
    sink = TrialSink(call.reply)
    running = call.request(engine, sink)
    own = GROUP.set(RequestGroup(alone=True, begun=sink.end))
    client.left = sink.client_left
    try:
        running.begin(limit.remaining(), limit.error())
    finally:
        GROUP.reset(own)
    try:
        if client.open:
            await sink.ended
    finally:
        client.left = None
        running.cancel()
    return sink.error
