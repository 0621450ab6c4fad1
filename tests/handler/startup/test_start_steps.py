"""Steps that run side by side."""

from __future__ import annotations

import threading

import pytest

from handler.errors import SettingError, StartFailed
from handler.startup.lifecycle import Lifecycle
from handler.startup.start_steps import StartSteps, Step, StepsEnded

BAD = SettingError("ENDPOINT_MODEL", "there is none", "Give one.")


def begun(*steps: Step) -> StartSteps:
    found = StartSteps(Lifecycle())
    found.begin(steps)
    return found


def raising(error: BaseException) -> object:
    raise error


def test_steps_run_at_the_same_time() -> None:
    meeting = threading.Barrier(3, timeout=30)
    steps = begun(Step("one", meeting.wait), Step("two", meeting.wait))
    meeting.wait()  # passes only while both run
    assert {steps.result("one"), steps.result("two")} < {0, 1, 2}


def test_a_step_gets_the_results_that_it_needs() -> None:
    steps = begun(
        Step("sum", lambda one, two: one + two, ("one", "two")), Step("one", lambda: 1), Step("two", lambda: 2)
    )
    assert steps.result("sum") == 3


def test_a_failure_is_the_reason_wherever_the_start_waits() -> None:
    forever = threading.Event()
    steps = begun(Step("long", forever.wait), Step("short", lambda: raising(BAD)), Step("after", print, ("long",)))
    with pytest.raises(SettingError, match="there is none"):
        steps.result("long")
    with pytest.raises(SettingError, match="there is none"):
        steps.result("after")
    forever.set()


def test_another_errors_step_is_named() -> None:
    steps = begun(Step("import vLLM", lambda: raising(ImportError("no module"))), Step("long", threading.Event().wait))
    with pytest.raises(StartFailed, match="ImportError: no module"):
        steps.result("long")
    with pytest.raises(ImportError):  # its own waiter explains it
        steps.result("import vLLM")


@pytest.mark.parametrize("by_failure", [True, False])
def test_running_steps_end_with_the_start(by_failure: bool) -> None:
    ended = threading.Event()
    began = threading.Event()
    steps = StartSteps(Lifecycle())

    def long() -> None:
        began.set()
        try:
            while True:
                steps.check()
        except (SettingError, StepsEnded):
            ended.set()
            raise

    steps.begin([Step("long", long), *([Step("short", lambda: raising(BAD))] if by_failure else [])])
    assert began.wait(30)
    if not by_failure:
        steps.end()
    assert ended.wait(30)


def test_no_thread_ends_while_another_step_forks() -> None:
    threads: list[threading.Thread] = []

    def forks(importing: threading.Thread) -> bool:
        importing.join(0.5)
        threads.append(importing)
        return importing.is_alive()

    steps = begun(Step("import", threading.current_thread), Step("fork", forks, ("import",)))
    assert steps.result("fork"), "at its end a thread keeps locks of MKL, which the forked process would inherit"
    steps.end()
    threads[0].join(30)
    assert not threads[0].is_alive()


def test_a_step_is_timed_with_what_it_waited_for() -> None:
    lifecycle = Lifecycle()
    steps = StartSteps(lifecycle)
    go = threading.Event()

    def fetch() -> None:
        lifecycle.progress(3, 10, step="fetch model")
        go.wait(30)

    lifecycle.stage("start engine")
    steps.begin([Step("fetch model", fetch), Step("code", lambda model: None, ("fetch model",))])
    while "fetch model" not in lifecycle.steps or not lifecycle.steps["fetch model"].total:
        pass
    running = lifecycle.steps["fetch model"]
    assert (running.done, running.total, running.ended) == (3, 10, None)
    assert lifecycle.status.total == 0, "the progress of another step is not that of the stage"
    go.set()
    steps.result("code")
    model, code = lifecycle.steps.values()
    assert model.ended is not None
    assert model.ended <= code.began
    assert (code.waited_for, model.waited_for) == (("fetch model",), ())
