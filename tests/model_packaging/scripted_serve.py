"""A `serve` without an engine: its port, its stages, and an entry in the store, as the environment asks."""

from __future__ import annotations

import json
import os
import signal
import sys
import tempfile
import threading
from pathlib import Path

from handler.artifacts.store.artifact_store import ArtifactStore
from handler.artifacts.store.publication import CompileInputs
from tests.local_sagemaker.stub_container import Handler, Server

MODE = os.environ.get("SCRIPT", "compiles")
PINGS = iter(["check configuration", "compile: start engine", "compile: start engine", "publish artifacts"])


class Serve(Handler):
    def do_GET(self) -> None:
        stage = next(PINGS, "")
        if stage or MODE == "hangs":
            self._reply(503, {"status": "starting", "stage": stage or "compile: start engine"})
        elif MODE == "fails":
            print("[  61.0 s] failed: the compiler found no schedule. Lower max_model_len.", flush=True)
            self._reply(500, {"status": "failed", "stage": "compile", "reason": "the compiler found no schedule"})
        else:
            if MODE == "unpublished":
                event = {
                    "event": "artifact_not_published",
                    "code": "artifact_denied",
                    "problem": "s3:PutObject is missing",
                }
                print(json.dumps(event), flush=True)
            elif MODE == "compiles" and os.environ.get("ENDPOINT_ON_MISS") == "compile":
                publish()
            self._reply(200, None)

    def _reply(self, status: int, body: object) -> None:
        self.reply(b"" if body is None else json.dumps(body).encode(), status)


def publish() -> None:
    with tempfile.TemporaryDirectory() as made:
        Path(made, "model.pt").write_bytes(os.environ["ENDPOINT_MODEL"].encode())
        store = ArtifactStore.open(os.environ["ENDPOINT_ARTIFACT_STORE"])
        event = "artifact_restored" if store.find("ab" * 32, "graph") else "artifact_published"
        store.publish(Path(made), CompileInputs("ab" * 32, "graph", {"platform": "cpu"}, compile_seconds=3.0))
        print(json.dumps({"event": event, "key": "ab" * 32}), flush=True)


if MODE == "dies":
    line = {"time": "2026-11-26T10:00:00.000Z", "level": "error", "event": "log", "logger": "x", "message": "it ends"}
    print(json.dumps(line), flush=True)
    sys.exit(3)
if MODE == "refuses":
    print("serve: ENDPOINT_BLOCK_SIZE: 7 is no block size. Use 32.", flush=True)
    sys.exit(2)
server = Server(("127.0.0.1", int(os.environ["SAGEMAKER_BIND_TO_PORT"])), Serve)
signal.signal(signal.SIGTERM, lambda *_: threading.Thread(target=server.shutdown).start())
server.serve_forever()
Path(os.environ["STOPPED"]).write_text("in good order")
