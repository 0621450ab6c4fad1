"""A short soak of the session's endpoint. `make soak` is the long one, which also measures memory."""

from __future__ import annotations

import asyncio
import os

import pytest

from tests.endpoint.serve_process import ServeProcess
from tests.soak.soak import SoakPlan, soak
from tests.soak.soak_state import StateWatch

pytestmark = pytest.mark.engine

SLOTS = 16  # SM_VLLM_MAX_NUM_SEQS of serve_process.py
SECONDS = float(os.environ.get("SOAK_SECONDS", "8"))
VISITORS = 40


def test_visitors_of_every_kind_leave_nothing_behind(endpoint: ServeProcess) -> None:
    plan = SoakPlan(SECONDS, warm_seconds=SECONDS / 2, visitors=VISITORS)
    result = asyncio.run(soak(StateWatch(endpoint.process.pid, endpoint.port), endpoint.port, plan, SLOTS))
    assert result.wrong == []
    assert result.leaks() == []
    assert len(result.visits) >= 15, f"not all kinds came: {result.visits}"
    assert max(held.running for _, held in result.samples) > SLOTS, "it was never saturated"
    assert endpoint.ping() == (200, "")
