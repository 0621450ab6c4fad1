"""A real Chromium, headless, driven over its DevTools protocol (chromedevtools.github.io/devtools-protocol)."""

from __future__ import annotations

import base64
import itertools
import json
import shutil
import subprocess
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import httpx
from websockets.sync.client import connect

from tests.handler.waiting import eventually

NAMES = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")
ARGUMENTS = (
    "--headless=new",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-dev-shm-usage",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--remote-debugging-port=0",
    "--window-size=1200,900",
)
STARTED_WITHIN = 60.0
AXE = Path(__file__).with_name("axe.min.js")  # axe-core 4.14.1 of npm, MPL-2.0


def installed() -> str | None:
    return next((path for path in map(shutil.which, NAMES) if path), None)


class Browser:
    """One page in one browser.

    :ivar complaints: what the page's console and the browser have complained about, failed requests aside.
    :ivar requested: the addresses that the page asked for.
    """

    def __init__(self, program: str, directory: Path) -> None:
        self.complaints: list[str] = []
        self.requested: list[str] = []
        self._numbers = itertools.count(1)
        profile = directory / "profile"
        arguments = [program, *ARGUMENTS, f"--user-data-dir={profile}", "about:blank"]
        with (directory / "browser.log").open("wb") as log:
            self.process = subprocess.Popen(arguments, stdout=log, stderr=log)
        port_file = profile / "DevToolsActivePort"
        try:
            eventually(lambda: port_file.exists() and "\n" in port_file.read_text(), STARTED_WITHIN)
            port = port_file.read_text().split("\n")[0]
            pages = httpx.get(f"http://127.0.0.1:{port}/json/list", trust_env=False).json()
            address = next(page["webSocketDebuggerUrl"] for page in pages if page["type"] == "page")
            self._stack = ExitStack()
            self._socket = self._stack.enter_context(connect(address, max_size=None, proxy=None, ping_interval=None))
        except BaseException:
            self.process.kill()
            raise
        for domain in ("Page", "Runtime", "Log", "Network"):
            self.call(f"{domain}.enable")

    def call(self, method: str, **parameters: object) -> dict[str, Any]:
        number = next(self._numbers)
        self._socket.send(json.dumps({"id": number, "method": method, "params": parameters}))
        while True:
            message = json.loads(self._socket.recv(timeout=30))
            if message.get("id") == number:
                assert "error" not in message, message
                result: dict[str, Any] = message["result"]
                return result
            self._heard(message)

    def _heard(self, message: dict[str, Any]) -> None:
        given = message.get("params", {})
        match message.get("method"):
            case "Runtime.exceptionThrown":
                self.complaints.append(str(given["exceptionDetails"]))
            case "Log.entryAdded" if given["entry"]["source"] != "network":
                self.complaints.append(given["entry"]["text"])
            case "Runtime.consoleAPICalled" if given["type"] in {"warning", "error"}:
                self.complaints.append(str(given["args"]))
            case "Network.requestWillBeSent":
                self.requested.append(given["request"]["url"])

    def open(self, url: str) -> None:
        self.call("Page.navigate", url=url)
        eventually(lambda: self.run("document.readyState") == "complete" and self.run("location.href") == url)

    def run(self, script: str) -> Any:
        """An expression's value, as JSON can hold it."""
        reply = self.call("Runtime.evaluate", expression=script, returnByValue=True, awaitPromise=True)
        assert "exceptionDetails" not in reply, reply
        return reply["result"].get("value")

    def run_node(self, selector: str) -> str:
        """The remote object of an element, for calls that need one."""
        reply = self.call("Runtime.evaluate", expression=f"document.querySelector({json.dumps(selector)})")
        return str(reply["result"]["objectId"])

    def text(self, selector: str) -> str:
        return str(self.run(f"document.querySelector({json.dumps(selector)})?.textContent ?? ''"))

    def write(self, selector: str, text: str) -> None:
        self.run(f"document.querySelector({json.dumps(selector)}).focus()")
        self.call("Input.insertText", text=text)

    def click(self, selector: str) -> None:
        """With the mouse, where the element is."""
        script = f"""(() => {{ const element = document.querySelector({json.dumps(selector)});
            element.scrollIntoView({{block: "center"}}); const box = element.getBoundingClientRect();
            return [box.x + box.width / 2, box.y + box.height / 2]; }})()"""
        x, y = self.run(script)
        for kind in ("mousePressed", "mouseReleased"):
            self.call("Input.dispatchMouseEvent", type=kind, x=x, y=y, button="left", clickCount=1)

    def look(self, width: int, scheme: str, height: int = 900) -> None:
        """Sets the size of the window, and the colour scheme: `light` or `dark`."""
        self.call(
            "Emulation.setDeviceMetricsOverride", width=width, height=height, deviceScaleFactor=1, mobile=width < 500
        )
        self.call("Emulation.setEmulatedMedia", features=[{"name": "prefers-color-scheme", "value": scheme}])

    def violations(self) -> list[str]:
        """What axe-core finds: rule and elements."""
        if not self.run("'axe' in window"):
            self.call("Runtime.evaluate", expression=AXE.read_text(encoding="utf-8"))
        found = self.run("axe.run().then(({violations}) => violations.map(v => [v.id, ...v.nodes.map(n => n.html)]))")
        return [" ".join(each)[:500] for each in found]

    def overflow(self) -> list[str]:
        """The elements that are wider than the window, if it can be scrolled sideways."""
        script = """(() => { const width = document.documentElement.clientWidth;
            if (document.documentElement.scrollWidth <= width) return [];
            return [...document.querySelectorAll("*")].filter(e => e.getBoundingClientRect().right > width + 1)
                .map(e => e.tagName + "#" + e.id + "." + e.className); })()"""
        wide: list[str] = self.run(script)
        return wide

    def screenshot(self, path: Path, *, whole: bool = False) -> None:
        """:param whole: all of the page, not only what the window shows."""
        shot = self.call("Page.captureScreenshot", format="png", captureBeyondViewport=whole)
        path.write_bytes(base64.b64decode(shot["data"]))

    def close(self) -> None:
        try:
            self.call("Browser.close")
            self._stack.close()
            self.process.wait(10)
        finally:
            self.process.kill()
            self.process.wait(10)


def ask(page: Browser, text: str) -> None:
    """Sends a message of the page's chat."""
    page.write("#prompt", text)
    page.click("#send")


def answer(page: Browser) -> str:
    """The last reply of the page's chat."""
    return page.text("#messages .assistant:last-of-type .text").strip()
