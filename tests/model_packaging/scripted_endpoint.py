"""A container without an engine: stages on its output, a /ping, and a streamed chat; or a start that fails."""

from __future__ import annotations

import json
import os
import signal
import sys
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

WORDS = ["It", "answers", "200", "when", "the", "engine", "does,", "süß."]
PINGS = iter(range(3))
MODEL = Path(os.environ.get("SAGEMAKER_BASE_DIR", "/opt/ml"), "model")


class Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def do_GET(self) -> None:
        status = 503 if next(PINGS, None) is not None else 200
        self.send_response(status)
        self.send_header("Content-Length", "0")
        self.end_headers()

    def do_POST(self) -> None:
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        if body.get("max_tokens", 0) > 1000:
            self._whole(400, {"error": {"message": "max_tokens is above 1000. Lower it.", "code": "invalid_value"}})
        elif body.get("stream"):
            self._stream()
        else:
            self._whole(200, {"choices": [{"index": 0, "message": {"content": " ".join(WORDS)}}]})

    def _stream(self) -> None:
        self.send_response(200)
        self.send_header("Content-Type", "text/event-stream")
        self.send_header("Transfer-Encoding", "chunked")
        self.end_headers()
        chunks = [
            {"choices": [{"index": 0, "delta": {"content": f" {word}" if i else word}}]} for i, word in enumerate(WORDS)
        ]
        usage = {"choices": [], "usage": {"completion_tokens": len(WORDS)}}
        for event in (*(json.dumps(chunk, ensure_ascii=False) for chunk in [*chunks, usage]), "[DONE]"):
            data = f"data: {event}\n\n".encode()
            self.wfile.write(b"%x\r\n%b\r\n" % (len(data), data))
        self.wfile.write(b"0\r\n\r\n")

    def _whole(self, status: int, document: object) -> None:
        body = json.dumps(document).encode()
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: object) -> None:
        pass


if os.environ.get("SM_VLLM_MAX_NUM_SEQS") == "3":
    print("serve: SM_VLLM_MAX_NUM_SEQS: 3 is odd. Use 4.", flush=True)
    sys.exit(2)
print(f"[   0.2 s] fetch model: {len(list(MODEL.iterdir()))} files, 0.1 s", flush=True)
server = ThreadingHTTPServer(("127.0.0.1", int(os.environ["SAGEMAKER_BIND_TO_PORT"])), Handler)
signal.signal(signal.SIGTERM, lambda *_: threading.Thread(target=server.shutdown).start())
server.serve_forever()
