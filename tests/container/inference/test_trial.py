"""The trial of a body that was in an engine that died."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from contextlib import nullcontext
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
    """Waits for its turn, because others do not end."""

    stream, reply = False, None

    def __init__(self, meanwhile: Callable[[Any, Any], None]) -> None:
        self.meanwhile = meanwhile
        self.cancelled = False

    def request(self, engine: object, sink: Any) -> SimpleNamespace:
        return SimpleNamespace(begin=lambda seconds, late: self.meanwhile(sink, late), cancel=self.cancel)

    def cancel(self) -> None:
        self.cancelled = True


@pytest.mark.parametrize("leaves", [False, True])
def test_a_body_that_did_not_get_its_turn_stays_suspected_and_does_not_run_beside_others(*, leaves: bool) -> None:
    """Its deadline has come, or its client has left. Others wait for the end of its trial."""
    deaths = DeathLog()
    deaths.add(Presence(digest_of(BODY), "first", 1.0, time.monotonic()))
    recovery, record = Recovery(deaths=deaths), RequestRecord({})
    recovery.keep(record, BODY)
    limit = Deadline(1.0, time.monotonic() + 1.0, stream=False)
    engine = Mock(facts=Mock(longest_token=8), context=64)
    client = SimpleNamespace(left=None, open=True)

    def leave() -> None:
        client.open = False
        client.left("client_closed")

    def meanwhile(sink: Any, late: Any) -> None:
        if leaves:
            asyncio.get_running_loop().call_soon(leave)
        else:
            sink.fail(late)

    call: Any = WaitingCall(meanwhile)

    async def tried() -> None:
        await try_suspect(recovery, engine, lambda document, of: call, (BODY,), record, limit, WorkThreads(), client)

    with nullcontext() if leaves else pytest.raises(DeadlineExceeded):
        asyncio.run(asyncio.wait_for(tried(), 20))
    assert call.cancelled
    again = RequestRecord({})
    recovery.keep(again, BODY)
    assert recovery.suspected(again)
