"""The page in a real Chromium beside a real engine: start, chat, adapter, stop, death, a failed start."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

import sample_model
from sample_model.facts import by_name
from tests.container.browser import Browser, answer, ask, installed
from tests.endpoint.serve_process import STARTED_WITHIN, ServeProcess

PROGRAM = installed()
pytestmark = [
    pytest.mark.engine,
    pytest.mark.skipif(PROGRAM is None, reason="Chromium is not installed (apt-get install chromium)"),
]
HELLO = by_name("hello")
AHOY = "Ahoy! I am the adapter of this model. Ask me how it works."


@pytest.fixture(scope="module")
def browser(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Browser]:
    assert PROGRAM is not None
    browser = Browser(PROGRAM, tmp_path_factory.mktemp("browser"))
    yield browser
    browser.close()


def test_a_start_a_chat_an_adapter_a_stop_and_an_engine_that_dies(browser: Browser, tmp_path: Path) -> None:
    (tmp_path / "model").symlink_to(sample_model.path())
    served = ServeProcess(
        tmp_path,
        {
            "SAGEMAKER_BASE_DIR": str(tmp_path),
            "ENDPOINT_PAGE": "true",
            "ENDPOINT_ENABLE_LORA": "true",
            "ENDPOINT_LORA_MODULES": f"pirate={sample_model.adapter_path()}",
            "SM_VLLM_SERVED_MODEL_NAME": "sample",
        },
    )
    try:
        served.wait_port()
        browser.open(f"{served.url}/")
        served.until(lambda: browser.text("#state") == "starting" and bool(browser.text("#steps .running")), 60)
        assert browser.run("document.getElementById('send').disabled")
        served.until(lambda: browser.text("#state") == "ready", STARTED_WITHIN)
        assert "after " in browser.text("#steps")
        assert not browser.text("#steps .running")

        browser.write("#temperature", "0")
        ask(browser, HELLO.questions[0])
        served.until(lambda: "tokens/s" in browser.text("#messages .speed"), 60)
        assert answer(browser) == HELLO.answer

        browser.click("#clear")
        browser.run("document.getElementById('chosen-model').value = 'pirate'")
        ask(browser, HELLO.questions[0])
        served.until(lambda: bool(browser.text("#messages .regenerate")), 60)
        assert answer(browser) == AHOY
        assert browser.text("#messages .who") + browser.text("#messages .assistant .who") == "Youpirate"

        served.until(lambda: served.metric("endpoint_requests_in_engine") == 0, 20)
        (core,) = served.engine_pids()
        os.kill(core, signal.SIGSTOP)  # the reply cannot end before the stop
        ask(browser, HELLO.questions[0])
        served.until(lambda: served.metric("endpoint_requests_in_engine") == 1, 20)
        browser.click("#stop")
        served.until(lambda: browser.run("document.getElementById('stop').hidden"), 20)
        os.kill(core, signal.SIGCONT)
        served.until(lambda: served.metric("endpoint_requests_in_engine") == 0, 20)

        os.kill(core, signal.SIGKILL)
        served.until(lambda: browser.text("#state") != "ready", 60)
        served.until(lambda: "ended by SIGKILL" in browser.text("#notice"), 60)
        served.until(lambda: browser.text("#state") == "ready", STARTED_WITHIN)
        assert "The endpoint is back." in browser.text("#notice")
        browser.click("#clear")
        browser.run("document.getElementById('prompt').value = ''")
        ask(browser, HELLO.questions[0])
        served.until(lambda: bool(browser.text("#messages .regenerate")), 60)
        assert browser.complaints == []
    finally:
        assert served.terminate() == 0, served.log


@pytest.mark.parametrize("stop", [signal.SIGTERM, signal.SIGINT])
def test_a_failed_start_is_on_the_page_until_the_container_is_stopped(
    browser: Browser, tmp_path: Path, stop: signal.Signals
) -> None:
    """Without the page the process ends at once, with the same status."""
    bad = {"ENDPOINT_MODEL": "/nowhere/at/all"}
    without = ServeProcess(tmp_path / "without", bad)
    status = without.process.wait(60)
    assert status not in (0, -signal.SIGTERM)

    served = ServeProcess(tmp_path / "with", {**bad, "ENDPOINT_PAGE": "true"})
    try:
        served.until(lambda: "until SIGTERM or Ctrl-C" in served.log, 60)
        browser.complaints.clear()
        browser.look(375, "light")
        browser.open(f"{served.url}/")
        served.until(lambda: browser.text("#state") == "failed", 20)
        assert "ENDPOINT_MODEL" in browser.text("#notice")
        assert browser.text("#steps .failed")
        served.until(lambda: "/nowhere/at/all" in browser.text("#setting-list"), 20)
        assert served.ping()[0] == 500
        assert served.client.post("/invocations", json={"prompt": "a"}).json()["error"]["code"] == "engine_failed"
        assert browser.violations() == []
        assert browser.overflow() == []
        assert browser.complaints == []
        served.process.send_signal(stop)
        assert served.process.wait(30) == status
        assert "Traceback" not in served.log
    finally:
        served.kill_all()
