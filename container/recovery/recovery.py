"""What a serving process does for requests whose engine has died, and with the bodies that may have been the reason."""

from __future__ import annotations

import logging
import re
import time
from collections.abc import Callable, Mapping
from typing import Any

from container.recovery.death_log import REFUSED, DeathLog, Presence, Refusal, digest_of, refusals, suspects
from container.recovery.request_channel import HandedRequest, RequestChannel, RequestNote, request_bytes
from container.requests.deadline import Deadline
from container.requests.request_record import RequestRecord
from container.telemetry.event_log import event
from handler.errors import BodyQuarantined, EndpointError, EngineFailed, InvalidBody
from handler.json_value import Json
from handler.schemas.json_body import decode

logger = logging.getLogger(__name__)
# What the log shows of a body: names of fields, unless they look like text.
FIELD = re.compile(r"[A-Za-z_][A-Za-z0-9_]{0,39}")
MOST_FIELDS = 64
# A request with a larger body is not run again: bodies are kept while their requests run.
MAX_KEPT = 1 << 20


class Recovery:
    """Thread-safe. Without arguments: requests of a dead engine get their error, and no body is refused.

    :param channel: the channel to the next serving process.
    :param deaths: the bodies that were there when engines of this container died.
    :param life: when the engine's process was started, in monotonic seconds.
    :ivar successor: returns whether the master will start another process if this one's engine fails.
    """

    def __init__(
        self,
        channel: RequestChannel | None = None,
        deaths: DeathLog | None = None,
        life: float = 0.0,
        successor: Callable[[], bool] = lambda: False,
    ) -> None:
        self._channel, self._deaths, self._life, self.successor = channel, deaths, life, successor
        self._lost: list[Json] = []
        self._trying = False
        now = time.monotonic()
        presences = [] if deaths is None else deaths.read()
        self._refusals: dict[str, Refusal] = refusals(presences, now)
        self._suspects: set[str] = suspects(presences, now)
        for refusal in self._refusals.values():
            seconds, names = refusal.until - now, ", ".join(refusal.request_ids)
            message = f"the body of {names} is refused for {seconds:.0f} s: the engine has died of it alone"
            event(logger, "body_quarantined", message, {"requests": [*refusal.request_ids], "seconds": round(seconds)})

    def keep(self, record: RequestRecord, body: bytes) -> None:
        """Keeps a request's body, or its digest, for the case that the engine dies.

        :raises BodyQuarantined: the engine has died of the body alone.
        """
        if self._suspects:
            digest = record.body_digest = digest_of(body)
            refusal = self._refusals.get(digest)
            if refusal is not None and (seconds := refusal.until - time.monotonic()) > 0:
                raise BodyQuarantined(seconds)
        if len(body) <= MAX_KEPT:
            record.body = body
        else:
            record.body_digest = digest_of(body)

    def suspected(self, record: RequestRecord) -> bool:
        """Whether a request's body was in an engine that died, and is to be tried alone now."""
        suspected = record.body_digest in self._suspects
        self._trying = self._trying or suspected
        return suspected

    def tried(self, record: RequestRecord, *, died: bool, ran: bool = True) -> None:
        """Call when a suspected body has run alone.

        :param died: the engine has died of it.
        :param ran: False: its deadline came first, so it is suspected as before.
        :raises BodyQuarantined: if so.
        """
        if ran:
            self._suspects.discard(record.body_digest)
        self._trying = died
        if died and self._deaths is not None:
            self._deaths.add(Presence(record.body_digest, record.request_id, self._life, time.monotonic(), alone=True))
            self._lose(record, again=False)
            raise BodyQuarantined(REFUSED)

    def failed(
        self,
        error: EndpointError | None,
        record: RequestRecord,
        environ: Mapping[str, Any],
        descriptor: int | None = None,
        deadline: Deadline | None = None,
    ) -> bool:
        """Call when a request has ended with an error. If the engine has died, it notes what its core had.

        :param descriptor: of the client's connection, if nothing has been sent and the request may run again.
        :param deadline: the request's.
        :returns: whether the next serving process has the request now. The caller closes its own socket, without a
            shutdown, and sends nothing.
        """
        if not isinstance(error, EngineFailed) or self._channel is None:
            return False
        body, handed_over = record.body, False
        # An engine that a body alone has ended does not count, so another follows.
        rerun = body and record.may_rerun and (self._trying or self.successor())
        if rerun and descriptor is not None and deadline is not None:
            note = RequestNote(record.request_id, record.began, deadline)
            try:
                self._channel.send(descriptor, request_bytes(environ, body), note)
                handed_over = True
            except OSError as problem:
                logger.warning("request %s cannot be run again (%s)", record.request_id, problem)
        if self._deaths is not None and error.in_core:
            digest = record.body_digest or digest_of(body)
            self._deaths.add(Presence(digest, record.request_id, self._life, time.monotonic()))
        self._lose(record, again=handed_over)
        return handed_over

    def _lose(self, record: RequestRecord, *, again: bool) -> None:
        fields: list[Json] = [*fields_of(record.body)]
        self._lost.append({"request_id": record.request_id, "run_again": again, "fields": fields})

    def report(self, reason: str) -> None:
        """Logs which requests were in the engine at its death, by id, with the names of their fields."""
        lost, self._lost = self._lost, []
        if not lost:
            return
        again = sum(bool(isinstance(request, dict) and request["run_again"]) for request in lost)
        message = f"{reason}: {len(lost)} requests were in the engine, and {again} of them run again"
        event(logger, "engine_died", message, {"reason": reason, "requests": lost})

    def pass_on(self, handed: HandedRequest) -> bool:
        """Hands a request that has waited for this process's engine over to the next serving process.

        :returns: whether the next one has it now. Otherwise none follows, or the channel is full.
        """
        if self._channel is None or not self.successor():
            return False
        try:
            self._channel.send(handed.connection.fileno(), handed.request, handed.note)
        except OSError as problem:
            logger.warning("request %s cannot wait for another engine (%s)", handed.note.request_id, problem)
            return False
        handed.connection.close()
        return True

    def receive(self) -> HandedRequest | None:
        """The next request that an earlier process has handed over."""
        return None if self._channel is None else self._channel.receive()


def fields_of(body: bytes) -> list[str]:
    """The names of a body's fields. Empty for a body of several lines."""
    try:
        return sorted(name for name in decode(body) if FIELD.fullmatch(name))[:MOST_FIELDS]
    except InvalidBody:
        return []
