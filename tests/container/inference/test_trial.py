"""The trial of a body that was in an engine that died."""

from __future__ import annotations

import asyncio
import time
from types import SimpleNamespace
from typing import Any
from unittest.mock import Mock

import pytest

from container.inference.trial import try_suspect
from container.recovery.death_log import DeathLog, Presence, digest_of
from container.recovery.recovery import Recovery
from container.requests.deadline import Deadline
from container.requests.request_record import RequestRecord
from handler.engine.event_loop import WorkThreads
from handler.errors import DeadlineExceeded

BODY = b'{"prompt": "poison"}'


class WaitingCall:
    """Waits for its turn until its deadline, because others do not end."""

    stream, reply = False, None

    def request(self, engine: object, sink: Any) -> SimpleNamespace:
        return SimpleNamespace(begin=lambda seconds, late: sink.fail(late), cancel=lambda: None)


def test_a_body_that_did_not_get_its_turn_stays_suspected_and_does_not_run_beside_others() -> None:
    deaths = DeathLog()
    deaths.add(Presence(digest_of(BODY), "first", 1.0, time.monotonic()))
    recovery, record = Recovery(deaths=deaths), RequestRecord({})
    recovery.keep(record, BODY)
    limit = Deadline(1.0, time.monotonic() + 1.0, stream=False)
    engine = Mock(facts=Mock(longest_token=8), context=64)

    async def tried() -> None:
        await try_suspect(recovery, engine, lambda document, of: WaitingCall(), (BODY,), record, limit, WorkThreads())  # type: ignore[arg-type,return-value]  # what a trial uses of a call

    with pytest.raises(DeadlineExceeded):
        asyncio.run(tried())
    again = RequestRecord({})
    recovery.keep(again, BODY)
    assert recovery.suspected(again)
