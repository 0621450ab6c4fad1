"""The page in a real Chromium, before a real gunicorn with a scripted engine: clicks through it while a stream runs."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from browser import Browser, installed
from scripted_process import Server
from waiting import eventually

PROGRAM = installed()
pytestmark = pytest.mark.skipif(PROGRAM is None, reason="Chromium is not installed (apt-get install chromium)")
# What a model could say to whoever shows it as markup.
MARKUP = "x<img src=x onerror=document.title='broken'><script>document.title='broken'</script>"


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    server = Server(tmp_path_factory.mktemp("page") / "errors.log", "--page")
    yield server
    server.stop()


@pytest.fixture(scope="module")
def browser(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Browser]:
    assert PROGRAM is not None
    browser = Browser(PROGRAM, tmp_path_factory.mktemp("browser"))
    yield browser
    browser.close()


@pytest.fixture
def page(server: Server, browser: Browser) -> Iterator[Browser]:
    """The page, opened anew; at the end nothing may have been complained about or asked of anyone else."""
    browser.complaints.clear()
    browser.requested.clear()
    url = f"http://127.0.0.1:{server.port}/"
    browser.open(url)
    eventually(lambda: browser.text("#queue-now").startswith("0 of"))
    yield browser
    eventually(lambda: server.seen()["in_flight"] == 0)
    assert browser.complaints == []
    assert all(asked.startswith((url, "data:")) for asked in browser.requested), browser.requested


def test_a_chat_while_its_stream_runs(page: Browser, server: Server) -> None:
    page.write("#prompt", f"Hello |<gate:chat>|{MARKUP}|!")
    page.click("#send")
    eventually(lambda: page.text("#messages .assistant") == "Hello ")
    eventually(lambda: page.text("#queue-now").startswith("1 of"))
    assert page.run("document.getElementById('send').disabled")
    page.click("details:not([open]) summary")  # the page stays usable meanwhile
    assert page.run("document.querySelectorAll('details')[1].open")

    server.open("chat")
    eventually(lambda: page.text("#messages .assistant") == f"Hello {MARKUP}!")
    eventually(lambda: not page.run("document.getElementById('send').disabled"))
    assert page.run("document.querySelectorAll('#messages img, #messages script').length") == 0
    eventually(lambda: page.text("#queue-now").startswith("0 of"))
    assert page.run("document.title") == "scripted: ready"
    assert page.run("document.querySelector('#queue polyline').getAttribute('points').split(' ').length") > 1


def test_stop_frees_the_slot_and_a_new_chat_forgets(page: Browser, server: Server) -> None:
    before = server.seen()["cancelled"]
    page.write("#prompt", "so far|<hold>")
    page.click("#send")
    eventually(lambda: page.text("#messages .assistant") == "so far")
    page.click("#stop")
    eventually(lambda: server.seen()["cancelled"] == before + 1)
    page.click("#clear")
    assert page.text("#messages") == ""
    page.write("#prompt", "anew")
    page.click("#send")
    eventually(lambda: page.text("#messages .assistant") == "anew")  # the script was this message alone


@pytest.mark.parametrize(("script", "said"), [("<refuse>", "vLLM refuses it"), ("a|<fail>", "")])
def test_an_error_is_shown_in_words_and_the_chat_goes_on(page: Browser, script: str, said: str) -> None:
    page.write("#prompt", script)
    page.click("#send")
    eventually(lambda: len(page.text("#messages .error")) > 20)
    assert said in page.text("#messages .error")
    page.click("#clear")
    page.write("#prompt", "again")
    page.click("#send")
    eventually(lambda: page.text("#messages .assistant") == "again")
