"""A stub, not the container: keeps SageMaker's contract with the standard library alone, and does what a body asks for.

Bodies are JSON objects with "do"; the environment variables that start with STUB_ make it broken or deaf, or
starting until a file is there (STUB_READY_WITH).
"""

from __future__ import annotations

import json
import os
import signal
import socket
import sys
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

ADAPTERS: dict[str, str] = {}
MODELS: dict[str, str] = {}
SESSIONS: set[str] = set()
SETTING = os.environ.get
MODEL = Path(os.environ.get("SAGEMAKER_BASE_DIR", "/opt/ml")) / "model"


class Handler(BaseHTTPRequestHandler):
    server: Server
    protocol_version = "HTTP/1.1"

    def do_GET(self) -> None:
        if self.path == "/ping":
            self.server.ready = ready = self.server.ready or Path(SETTING("STUB_READY_WITH", "/")).exists()
            if SETTING("STUB_ENDLESS_PING"):
                self.connection.sendall(b"HTTP/1.1 200 OK\r\n\r\n")
                while True:
                    self.connection.sendall(b"x")
                    time.sleep(0.1)
            self.reply(b"", 200 if ready and not SETTING("STUB_NEVER_HEALTHY") else 503)
        elif self.path == "/execution-parameters":
            strategy = SETTING("STUB_BATCH_STRATEGY", "SINGLE_RECORD")
            parameters = {"MaxConcurrentTransforms": 2, "BatchStrategy": strategy, "MaxPayloadInMB": 1}
            self.reply(json.dumps(parameters).encode())
        else:
            self.reply(json.dumps({"path": self.path}).encode())

    def do_DELETE(self) -> None:
        kind, name = self.path[1:].split("/")
        self.reply(b"{}", 200 if {"adapters": ADAPTERS, "models": MODELS}[kind].pop(name, None) else 404)

    def do_POST(self) -> None:
        body = self.read_body()
        if self.path == "/adapters":
            asked = json.loads(body)
            if SETTING("STUB_REFUSE_ADAPTERS"):
                self.reply(b'{"error": "no room for adapters"}', 507)
                return
            if (Path(asked["src"]) / "bad").exists():
                self.reply(b'{"error": "rank 512 is above 16"}', 400)
                return
            ADAPTERS[asked["name"]] = asked["src"]
            self.reply(b"{}")
        elif self.path == "/models":
            self.load(json.loads(body))
        else:
            asked = json.loads(body.split(b"\n")[0]) if body[:1] == b"{" else {}
            getattr(self, f"do_{asked.get('do') or asked.get('requestType') or 'echo'}".lower())(asked, body)

    def read_body(self) -> bytes:
        if self.headers.get("Transfer-Encoding") != "chunked":
            return self.rfile.read(int(self.headers.get("Content-Length", 0)))
        body = b""
        while size := int(self.rfile.readline(), 16):
            body += self.rfile.read(size)
            self.rfile.readline()
        self.rfile.readline()
        return body

    def do_newline(self, asked: dict[str, Any], body: bytes) -> None:
        self.reply(b"{}\n")

    def do_header(self, asked: dict[str, Any], body: bytes) -> None:
        self.reply(b"{}", more={"X-Of-The-Stub": "x" * asked["size"]})

    def do_echo(self, asked: dict[str, Any], body: bytes) -> None:
        told = {
            "path": self.path,
            "headers": {name.lower(): value for name, value in self.headers.items()},
            "body": body.decode(errors="replace"),
            "pid": os.getpid(),
            "version": SETTING("STUB_VERSION", ""),
            "adapters": sorted(ADAPTERS),
            "models": sorted(MODELS.values()),
            "model": MODELS.get(self.path.split("/")[2]) if self.path.startswith("/models/") else None,
        }
        self.reply(json.dumps(told).encode(), content_type=SETTING("STUB_CONTENT_TYPE", "application/json"))

    def load(self, asked: dict[str, Any]) -> None:
        """Room for two models; one that holds the file "slow" takes its time, one with "bad" is refused."""
        model = Path(asked["url"])
        time.sleep(float((model / "slow").read_text()) if (model / "slow").exists() else 0)
        if (model / "bad").exists():
            self.reply(b'{"error": "no such architecture"}', 500)
        elif asked["model_name"] in MODELS:
            self.reply(b"{}", 409)
        elif len(MODELS) == 2:
            self.reply(b'{"error": "no room"}', 507)
        else:
            MODELS[asked["model_name"]] = (model / "name").read_text()
            self.reply(b"{}")

    def do_environment(self, asked: dict[str, Any], body: bytes) -> None:
        files = {str(path.relative_to(MODEL)): path.read_text() for path in sorted(MODEL.rglob("*")) if path.is_file()}
        self.reply(json.dumps({"environment": dict(os.environ), "files": files}).encode())

    def do_write(self, asked: dict[str, Any], body: bytes) -> None:
        try:
            (MODEL / "written").write_text("by the container")
        except OSError as error:
            self.reply(json.dumps({"refused": type(error).__name__}).encode())
        else:
            self.reply(b'{"refused": null}')

    def do_wait(self, asked: dict[str, Any], body: bytes) -> None:
        if begun := asked.get("begun"):
            Path(begun).touch()
        time.sleep(asked["seconds"])
        self.do_echo(asked, body)

    def do_fail(self, asked: dict[str, Any], body: bytes) -> None:
        self.reply(b'{"error": "as asked"}', asked["status"])

    def do_die(self, asked: dict[str, Any], body: bytes) -> None:
        os.kill(os.getpid(), signal.SIGKILL)

    def do_deafen(self, asked: dict[str, Any], body: bytes) -> None:
        """It lives, and takes no further connection from before its reply on."""
        self.server.socket.shutdown(socket.SHUT_RDWR)
        self.reply(b"{}")

    def do_flaky(self, asked: dict[str, Any], body: bytes) -> None:
        """Fails as often as it is asked to; counted in a file, for processes come and go."""
        count = Path(asked["count"])
        seen = int(count.read_text()) if count.exists() else 0
        count.write_text(str(seen + 1))
        self.do_fail({"status": 500}, body) if seen < asked["times"] else self.do_echo(asked, body)

    def do_stream(self, asked: dict[str, Any], body: bytes) -> None:
        texts = [f"größe {number} of {SETTING('STUB_VERSION', '')}" for number in range(asked["count"])]
        self.reply_events(texts, asked.get("pause", 0), ends=not asked.get("break"))

    def do_new_session(self, asked: dict[str, Any], body: bytes) -> None:
        session = f"session-{os.getpid()}"
        SESSIONS.add(session)
        self.reply(b"{}", more={"X-Amzn-SageMaker-New-Session-Id": f"{session}; Expires=2099-01-01T00:00:00Z"})

    def do_close(self, asked: dict[str, Any], body: bytes) -> None:
        self.reply(b"{}", more={"X-Amzn-SageMaker-Closed-Session-Id": self.headers["X-Amzn-SageMaker-Session-Id"]})

    def reply_events(self, texts: list[str], pause: float = 0, ends: bool = True) -> None:
        self.send_response(200)
        self.send_header("Content-Type", "text/event-stream")
        self.send_header("Transfer-Encoding", "chunked")
        self.end_headers()
        for text in texts:
            data = f"data: {text}\n\n".encode()
            self.wfile.write(b"%x\r\n%b\r\n" % (len(data), data))
            time.sleep(pause)
        if ends:
            self.wfile.write(b"0\r\n\r\n")
        else:
            self.close_connection = True
            self.connection.shutdown(socket.SHUT_RDWR)

    def reply(
        self, body: bytes, status: int = 200, content_type: str = "application/json", more: dict[str, str] | None = None
    ) -> None:
        self.send_response(status)
        for name, value in {"Content-Type": content_type, **(more or {}), "Content-Length": str(len(body))}.items():
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: object) -> None:
        pass


class Server(ThreadingHTTPServer):
    request_queue_size = 256
    daemon_threads = True
    ready = False


def took_place(room: Path) -> bool:
    """Whether a file was left in the directory. Each start removes one."""
    for place in room.iterdir():
        try:
            place.unlink()
        except FileNotFoundError:
            continue
        return True
    return False


def main() -> None:
    if (room := SETTING("STUB_ROOM")) and not took_place(Path(room)):
        sys.exit(1)
    if code := SETTING("STUB_EXIT"):
        print("the stub ends at once, as it was told")
        sys.exit(int(code))
    deaf = bool(SETTING("STUB_IGNORES_SIGTERM"))
    signal.signal(signal.SIGTERM, signal.SIG_IGN if deaf else lambda *_: os._exit(0))
    server = Server(("127.0.0.1", int(os.environ["SAGEMAKER_BIND_TO_PORT"])), Handler)
    print("the stub listens", flush=True)
    server.serve_forever(0.05)


if __name__ == "__main__":
    main()
