"""The page in a real Chromium, before a real gunicorn with a scripted engine: how it looks, and what people do on it.

tests/endpoint/test_page_and_engine.py does the same with vLLM's engine: a start, an adapter, a death.
"""

from __future__ import annotations

import base64
import json
import os
import random
import subprocess
import sys
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import pytest

from tests.container.browser import Browser, answer, ask, installed
from tests.container.scripted_process import Server
from tests.handler.waiting import eventually

PROGRAM = installed()
pytestmark = pytest.mark.skipif(PROGRAM is None, reason="Chromium is not installed (apt-get install chromium)")
SEED = 42
SIZES, SCHEMES = (375, 800, 1440), ("light", "dark")
PIXEL = base64.b64decode(
    "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg=="
)
# What a model could say to whoever shows it as markup. `broken` is the sign that a script has run.
HOSTILE = (
    "<img src=x onerror=document.title='broken'>",
    "<script>document.title='broken'</script>",
    "[a](javascript:document.title='broken')",
    "[a](JaVaScRiPt&colon;document.title='broken')",
    "[a](data:text/html,<script>document.title='broken'</script>)",
    "[a](vbscript:x) <javascript:x>",
    "![b](https://other.example/x.png)",
    "![b](data:image/svg+xml,<svg onload=document.title='broken'>)",
    "<svg><animate onbegin=document.title='broken' attributeName=x dur=1s>",
    "<math><mtext><table><mglyph><style><img src=x onerror=document.title='broken'>",
    "<iframe srcdoc='<script>parent.document.title=1</script>'></iframe>",
    "<form action=https://other.example><button>send",
    "<style>body{display:none}</style>",
    "<base href=https://other.example/>",
    "<a href=https://ok.example onclick=document.title='broken' style=position:fixed id=prompt name=body>b</a>",
    "`<b>`",
    "```html\n<img src=x onerror=document.title='broken'>\n```",
    "**bold** [ok](https://ok.example/)",
)
# Instead of boto3: it answers with the body that it was given.
BOTO3 = """
import io, json
def client(service):
    assert service == "sagemaker-runtime"
    return type("Runtime", (), {"invoke_endpoint": staticmethod(invoke)})
def invoke(EndpointName, ContentType, Body):
    return {"Body": io.StringIO(json.dumps({"choices": [{"message": {"content": Body}}]}))}
"""
TAGS = {*("A", "BLOCKQUOTE", "BR", "CODE", "DEL", "EM", "HR", "LI", "OL", "P", "PRE", "STRONG", "UL"), "H3", "H4"}
ATTRIBUTES = {"href", "target", "rel", "tabindex", "start"}


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    server = Server(tmp_path_factory.mktemp("page") / "errors.log", "--page", "--sessions", "--images", "--body=100000")
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
    browser.look(1200, "light")
    browser.open(url)
    eventually(lambda: browser.text("#state") == "ready" and browser.run("'uPlot' in window && 'DOMPurify' in window"))
    yield browser
    eventually(lambda: server.seen()["in_flight"] == 0)
    assert browser.complaints == []
    assert all(asked.startswith((url, "data:")) for asked in browser.requested), browser.requested


def is_answered(page: Browser, text: str) -> bool:
    return answer(page).endswith(text) and bool(page.run("document.getElementById('stop').hidden"))


def test_a_chat_while_its_stream_runs(page: Browser, server: Server) -> None:
    ask(page, "Hello |<gate:chat>|**you**|!")
    eventually(lambda: answer(page) == "Hello")
    eventually(lambda: "1 running of 3" in page.text("#charts"))
    assert page.run("document.getElementById('send').hidden")
    page.click("#parameters summary")  # the page stays usable meanwhile
    assert page.run("document.getElementById('parameters').open")

    server.open("chat")
    eventually(lambda: answer(page) == "Hello you!")
    assert page.text("#messages strong") == "you"
    eventually(lambda: not page.run("document.getElementById('send').hidden"))
    eventually(lambda: "0 running of 3" in page.text("#charts"))
    assert "tokens · first after" in page.text("#messages .speed")
    assert page.run("document.title") == "scripted: ready"
    eventually(lambda: "200 stop" in page.text("#request-table tbody"))
    assert "Hello" not in page.text("#request-table")


def test_what_a_model_says_is_never_more_than_text_and_harmless_markup(page: Browser) -> None:
    draw = random.Random(SEED)
    texts = [*HOSTILE, *("".join(draw.choices(HOSTILE, k=3)) for _ in range(100))]
    cut = [text[: draw.randrange(1, len(text))] for text in texts]  # as a stream shows it on the way
    script = """(async (texts) => {
        const { markdown } = await import("/page/markdown.js");
        const box = document.querySelector("#messages");
        const seen = { tags: {}, attributes: {}, addresses: {} };
        for (const text of texts) {
            box.replaceChildren(markdown(text));
            for (const node of box.querySelectorAll("*")) {
                seen.tags[node.tagName] = text;
                for (const {name, value} of node.attributes) {
                    seen.attributes[name] = text;
                    if (name === "href") seen.addresses[value] = text;
                }
            }
        }
        return seen; })"""
    seen = page.run(f"{script}({json.dumps(texts + cut)})")
    assert seen["tags"].keys() <= TAGS, seen
    assert seen["attributes"].keys() <= ATTRIBUTES, seen
    assert {address.partition(":")[0] for address in seen["addresses"]} <= {"https", "http"}, seen
    ask(page, f"so: {HOSTILE[0]}")
    eventually(lambda: answer(page) == f"so: {HOSTILE[0]}")
    assert page.run("document.querySelectorAll('#messages .text img, #messages script').length") == 0
    assert page.run("document.title") == "scripted: ready"


def test_the_boxes_of_a_list_show_what_is_done(page: Browser) -> None:
    ask(page, "- [x] done\n- [ ] open")
    eventually(lambda: page.text("#messages .assistant li:last-child") == "☐ open")
    assert page.text("#messages .assistant li") == "☑ done"


def test_stop_frees_the_slot_and_a_new_chat_forgets(page: Browser, server: Server) -> None:
    before = server.seen()["cancelled"]
    ask(page, "so far|<hold>")
    eventually(lambda: answer(page) == "so far")
    page.click("#stop")
    eventually(lambda: server.seen()["cancelled"] == before + 1)
    eventually(lambda: "stopped" in page.text("#messages .speed"))
    page.click("#clear")
    assert page.text("#messages") == ""
    ask(page, "anew")
    eventually(lambda: answer(page) == "anew")  # the script was this message alone


@pytest.mark.parametrize(("script", "said"), [("<refuse>", "vLLM refuses it"), ("a|<fail>", "")])
def test_an_error_is_shown_in_words_and_the_chat_goes_on(page: Browser, script: str, said: str) -> None:
    ask(page, script)
    eventually(lambda: len(page.text("#messages .error")) > 20)
    assert said in page.text("#messages .error")
    page.click("#clear")
    page.run("document.getElementById('prompt').value = ''")
    ask(page, "again")
    eventually(lambda: answer(page) == "again")


# Instead of an endpoint with a reasoning parser: each chat gets the next of `replies`, a list of chunks. Its text waits
# for `gate`.
REPLIES = """((replies) => { const real = fetch; window.sent = [];
    window.fetch = (url, options) => {
        if (url !== "/v1/chat/completions") return real(url, options);
        sent.push(JSON.parse(options.body).messages.map((message) => message.content));
        const chunks = replies.shift();
        let next = 0;
        return Promise.resolve(new Response(new ReadableStream({ async pull(stream) {
            if (next) await new Promise(requestAnimationFrame); // time passes between two chunks
            if (chunks[next]?.choices[0]?.delta.content) await window.gate;
            if (next === chunks.length) return stream.close();
            stream.enqueue(new TextEncoder().encode(`data: ${JSON.stringify(chunks[next++])}\\n\\n`));
        } }, { highWaterMark: 0 })));
    }; })"""


def chunk(finish_reason: str | None = None, **delta: object) -> dict[str, object]:
    return {"choices": [{"delta": delta, "finish_reason": finish_reason}]}


@pytest.mark.parametrize(
    ("reply", "said"),
    [
        ([chunk(reasoning="Hm."), chunk("length")], "cut by max tokens"),
        ([chunk(tool_calls=[{"function": {"name": "look"}}]), chunk("tool_calls")], "has no text"),
        ([chunk("stop")], "has no text"),
    ],
)
@pytest.mark.parametrize("before", [[], ["Hello"]])
def test_a_question_whose_reply_has_no_text_is_asked_again(
    page: Browser, before: list[str], reply: list[object], said: str
) -> None:
    replies = [*([chunk(content="Hello to you")] for _ in before), reply, [chunk(content="Four")]]
    page.run(f"{REPLIES}({json.dumps(replies)})")
    for text in before:
        ask(page, text)
        eventually(partial(is_answered, page, "Hello to you"))
    ask(page, "2 + 2?")
    eventually(lambda: said in page.text("#messages .error"))
    assert page.run("document.getElementById('prompt').value") == "2 + 2?"
    assert page.run("document.querySelectorAll('#messages .assistant').length") == len(before)

    page.click("#send")
    eventually(lambda: is_answered(page, "Four"))
    assert page.run("sent.at(-1)") == [*(text for hello in before for text in (hello, "Hello to you")), "2 + 2?"]
    assert page.text("#messages .error") == ""


@pytest.mark.parametrize("field", ["reasoning", "reasoning_content"])
def test_what_a_model_thinks_is_shown_and_counts_for_its_speed(page: Browser, field: str) -> None:
    thoughts = [chunk(**{field: "<b>Two</b> "}), chunk(**{field: "and two."})]
    usage = {"choices": [], "usage": {"completion_tokens": 9}}
    page.run(f"{REPLIES}({json.dumps([[*thoughts, chunk(content='Four'), usage], [chunk(content='!')]])})")
    page.run("void (window.gate = new Promise((open) => { window.answers = open; }))")
    ask(page, "2 + 2?")
    eventually(lambda: page.text("#messages .thinking") == "<b>Two</b> and two.")
    assert answer(page) == ""
    page.run("answers()")
    eventually(lambda: is_answered(page, "Four"))
    assert page.text("#messages .thinking") == "<b>Two</b> and two."
    assert "tokens/s" in page.text("#messages .speed")  # one piece of text alone has no speed
    assert page.violations() == []

    ask(page, "Sure?")
    eventually(lambda: is_answered(page, "!"))
    assert page.run("sent.at(-1)") == ["2 + 2?", "Four", "Sure?"]


def test_the_parameters_a_reply_again_and_its_request_as_code(page: Browser, server: Server, tmp_path: Path) -> None:
    page.click("#parameters summary")
    for selector, text in (("#system", "It's “so”:"), ("#temperature", "0.5"), ("#max-tokens", "200")):
        page.write(selector, text)
    ask(page, "one")
    eventually(lambda: page.text("#messages .regenerate"))
    assert answer(page) == "It's “so”:one"
    begun = server.seen()["begun"]
    page.click("#messages .regenerate")
    eventually(lambda: server.seen()["begun"] == begun + 1 and page.text("#messages .regenerate"))
    assert page.run("document.querySelectorAll('#messages .assistant').length") == 1

    page.click("#messages .code")
    curl = page.text("#code-text")
    body = json.loads(curl.split("\n", 1)[1].rsplit("\n", 1)[0])
    assert (body["temperature"], body["max_tokens"]) == (0.5, 200)
    replied = subprocess.run(["bash", "-c", curl], capture_output=True, text=True, timeout=60, check=True).stdout
    assert "data: [DONE]" in replied

    page.click("#languages button:nth-child(3)")
    ran = [sys.executable, "-c", page.text("#code-text")]
    assert subprocess.run(ran, capture_output=True, text=True, timeout=60, check=True).stdout == "It's “so”:one"

    page.click("#languages button:nth-child(2)")
    (tmp_path / "boto3.py").write_text(BOTO3)
    ran = [sys.executable, "-c", page.text("#code-text")]
    environment = {**os.environ, "PYTHONPATH": str(tmp_path)}
    done = subprocess.run(ran, capture_output=True, text=True, timeout=60, check=True, env=environment)
    assert json.loads(done.stdout)["messages"][0] == {"role": "system", "content": "It's “so”:"}
    page.click("#code-close")


def test_images_and_sessions_are_sent_where_the_endpoint_has_them(page: Browser, tmp_path: Path) -> None:
    page.run("""window.sent = []; const real = window.fetch;
        window.fetch = (url, options = {}) => { if (options.body) sent.push([options.headers, options.body]);
            return real(url, options); }""")
    page.click("#parameters summary")
    page.click("#in-session")
    for text in ("first", "second"):
        ask(page, text)
        eventually(partial(is_answered, page, text))
    header = "X-Amzn-SageMaker-Session-Id"
    first, second = (headers[header] for headers, _ in page.run("sent"))
    assert (first, second) == ("NEW_SESSION", page.text("#session-id"))
    page.click("#clear")
    assert page.run("sent")[-1] == [{"Content-Type": "application/json", header: second}, '{"requestType": "CLOSE"}']

    (tmp_path / "pixel.png").write_bytes(PIXEL)
    node = page.run_node("#picture")
    page.call("DOM.setFileInputFiles", files=[str(tmp_path / "pixel.png")], objectId=node)
    eventually(lambda: page.run("document.querySelectorAll('#pictures img').length") == 1)
    ask(page, "what is it")
    eventually(lambda: "what is it" in page.run("sent.at(-1)[1]"))
    (message,) = json.loads(page.run("sent.at(-1)[1]"))["messages"]
    url = "data:image/png;base64," + base64.b64encode(PIXEL).decode()
    assert message["content"] == [
        {"type": "image_url", "image_url": {"url": url}},
        {"type": "text", "text": "what is it"},
    ]
    eventually(lambda: page.text("#messages .error"))  # the scripted engine has no vision
    assert page.run("document.querySelectorAll('#pictures img').length") == 1
    assert page.run("document.getElementById('prompt').value") == "what is it"


def test_an_answer_that_it_cannot_show_does_not_end_its_polling(page: Browser) -> None:
    page.run("""window.polls = 0; const real = window.fetch; window.fetch = (url, options) =>
        url === "/page/state" && !polls++ ? Promise.resolve(new Response("{}")) : real(url, options)""")
    eventually(lambda: page.run("polls") > 1)
    page.complaints.clear()


def test_charts_are_kept_over_a_reload_and_say_the_values_under_the_pointer(page: Browser) -> None:
    ask(page, "a|b")
    kept = """(dispatchEvent(new Event('pagehide')), JSON.parse(sessionStorage.samples).time)"""
    before = page.run(kept)
    page.open(page.run("location.href"))
    eventually(lambda: page.run("document.querySelectorAll('#charts canvas').length") == 4)
    eventually(lambda: len(page.run(kept)) > len(before))
    assert page.run(kept)[: len(before)] == before
    x, y = page.run("""(() => { const plot = document.querySelector('#charts .u-over'); plot.scrollIntoView();
        const box = plot.getBoundingClientRect(); return [box.right - 3, box.y + 20]; })()""")
    page.call("Input.dispatchMouseEvent", type="mouseMoved", x=x, y=y)
    eventually(lambda: page.text("#charts output")[2:3] == ":")
    assert "the last 15 minutes. Now:" in page.run("document.querySelector('#charts .plot').ariaLabel")


def test_settings_are_found_by_any_of_their_words(page: Browser) -> None:
    eventually(lambda: " of " in page.text("#settings-count"))
    page.write("#search", "DRAIN default")
    eventually(lambda: "drain" in page.text("#setting-list"))
    assert "default" in page.text("#setting-list .source")


@pytest.mark.parametrize("scheme", SCHEMES)
@pytest.mark.parametrize("width", SIZES)
def test_every_size_and_scheme_is_accessible_and_fits(page: Browser, width: int, scheme: str) -> None:
    page.look(width, scheme)
    code = "```python\n" + "x = 1  # " + "long " * 60 + "\n```"
    ask(page, f"# Title\n\nA [link](https://ok.example/), `code` and a {'long' * 60} word.\n\n- one\n- two\n\n{code}")
    eventually(lambda: page.text("#messages .regenerate"))
    page.run("document.getElementById('only-set').click(), document.getElementById('parameters').open = true")
    assert page.overflow() == []
    assert page.violations() == []
    page.click("#messages .code")
    assert page.violations() == []
    assert page.overflow() == []


def test_the_keyboard_alone_is_enough(page: Browser) -> None:
    def press(key: str, code: int) -> None:
        for kind in ("rawKeyDown", "char", "keyUp"):
            text = {"text": "\r"} if key == "Enter" and kind == "char" else {}
            if kind != "char" or text:
                page.call("Input.dispatchKeyEvent", type=kind, key=key, windowsVirtualKeyCode=code, **text)

    press("Tab", 9)
    assert page.run("document.activeElement.className") == "skip"
    press("Enter", 13)
    eventually(lambda: page.run("document.activeElement.id") == "prompt")
    page.call("Input.insertText", text="typed")
    press("Enter", 13)
    eventually(lambda: answer(page) == "typed" and page.text("#messages .regenerate"))


def test_a_server_that_is_gone_is_said_in_words(browser: Browser, tmp_path: Path) -> None:
    server = Server(tmp_path / "errors.log", "--page")
    browser.complaints.clear()
    browser.look(375, "dark")
    browser.open(f"http://127.0.0.1:{server.port}/")
    eventually(lambda: browser.text("#state") == "ready")
    server.stop()
    eventually(lambda: "Nothing answers at this address" in browser.text("#notice"))
    assert browser.text("#state") == "no answer"
    assert browser.run("document.getElementById('send').disabled")
    assert browser.violations() == []
    assert browser.overflow() == []
    assert browser.complaints == []
