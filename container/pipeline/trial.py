"""Runs a body that may have ended an engine alone, before it runs beside others again."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from threading import Event

from container.recovery.recovery import Recovery
from container.requests.http_limits import Deadline
from container.requests.request_record import RequestRecord
from container.streaming.call_lifecycle import begin_call
from handler.engine.core_queue import GROUP, RequestGroup
from handler.engine.engine import Engine
from handler.engine.generation.generation import StopReason
from handler.errors import ClientError, EndpointError, EngineFailed
from handler.schemas.dispatch import Parse
from handler.schemas.json_body import decode
from handler.schemas.reply import AnyCall, RunningCall


class TrialSink:
    """The sink of a call whose reply nobody reads.

    :param done: set at the end, and when each of the call's sequences has a token.
    """

    def __init__(self, done: Event) -> None:
        self._done = done
        self.error: EndpointError | None = None

    def push(self, text: str, token_ids: Sequence[int], finish_reason: str | None, stop_reason: StopReason) -> None:
        if finish_reason is not None:
            self._done.set()

    def fail(self, error: EndpointError) -> None:
        self.error = error
        self._done.set()


def try_suspect(
    recovery: Recovery, engine: Engine, parse: Parse, bodies: Sequence[bytes], record: RequestRecord, limit: Deadline
) -> None:
    """Tries a request alone if its body was in an engine that died. Blocks meanwhile.

    :param bodies: the request's body, or its lines.
    :raises BodyQuarantined: the engine has died of it.
    """
    if not recovery.suspected(record):
        return
    died = False
    for body in bodies:
        try:
            error = _tried_alone(engine, parse(decode(body), engine), limit)
        except ClientError:
            continue  # the request itself ends with it
        died = isinstance(error, EngineFailed) and error.in_core and not engine.was_killed()
        if isinstance(error, EngineFailed):
            break
    recovery.tried(record, died=died)


def _tried_alone(engine: Engine, call: AnyCall, limit: Deadline) -> EndpointError | None:
    """Runs a call until each of its sequences has a token. Returns its error."""
    done = Event()
    sink = TrialSink(done)
    running = call.request(engine, sink)
    engine.loop.call(partial(_begin, running, RequestGroup(alone=True, begun=done.set), limit))
    done.wait()
    engine.loop.call(running.cancel)
    return sink.error


def _begin(running: RunningCall, group: RequestGroup, limit: Deadline) -> None:
    GROUP.set(group)
    begin_call(running, limit)
