"""vLLM in the master, for the next serving process."""

from __future__ import annotations

import threading
from collections.abc import Callable

import pytest

from container.server.ping_state import PASSED_ON, PingState
from container.server.preload import Preload
from tests.handler.waiting import WITHIN


def serving(load: Callable[[], object], status: int = 200) -> Preload:
    """Of an endpoint that serves."""
    state = PingState(3600)
    state.write(status, b"")
    return Preload(load, state, 0.001)  # type: ignore[arg-type]


@pytest.mark.parametrize("status", [200, PASSED_ON], ids=["its own /ping", "/ping of custom code"])
def test_it_is_loaded_once(status: int) -> None:
    loads: list[str] = []
    loaded = threading.Event()

    def load() -> None:
        loads.append("vllm")
        loaded.set()

    preload = serving(load, status)
    preload.begin()
    assert loaded.wait(WITHIN)
    for _ in range(2):
        preload.settle()
        preload.begin()
    preload.settle()
    assert loads == ["vllm"]


def test_nothing_is_loaded_while_the_endpoint_starts() -> None:
    loads: list[str] = []
    preload = Preload(lambda: loads.append("vllm"), PingState(3600), 0.001)
    for _ in range(2):  # the next serving process starts, too
        preload.begin()
        preload.settle()
    assert loads == []


def test_no_process_is_forked_in_the_middle_of_an_import() -> None:
    order: list[str] = []
    begun, go_on = threading.Event(), threading.Event()

    def load() -> None:
        begun.set()
        assert go_on.wait(WITHIN)
        order.append("loaded")

    preload = serving(load)
    preload.begin()
    assert begun.wait(WITHIN)

    def fork() -> None:
        preload.settle()
        order.append("forked")

    forking = threading.Thread(target=fork)
    forking.start()
    go_on.set()
    forking.join(WITHIN)
    assert order == ["loaded", "forked"]


def test_the_importing_thread_does_not_end_while_a_process_is_forked() -> None:
    threads: list[threading.Thread] = []
    loaded = threading.Event()

    def load() -> None:
        threads.append(threading.current_thread())
        loaded.set()

    preload = serving(load)
    preload.begin()
    assert loaded.wait(WITHIN)
    preload.settle()
    threads[0].join(0.5)
    assert threads[0].is_alive(), "at its end a thread keeps locks of MKL, which the forked process would inherit"


def test_an_import_that_fails_is_in_the_log_and_harms_nothing(caplog: pytest.LogCaptureFixture) -> None:
    failed = threading.Event()

    def load() -> None:
        failed.set()
        raise ImportError("no vLLM here")

    preload = serving(load)
    preload.begin()
    assert failed.wait(WITHIN)
    preload.settle()
    assert "no vLLM here" in caplog.text
