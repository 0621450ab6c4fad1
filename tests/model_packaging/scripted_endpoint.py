"""A container without an engine: stages on its output, a /ping, and a streamed chat; or a start that fails."""

from __future__ import annotations

import json
import os
import signal
import sys
import threading

from tests.local_sagemaker.stub_container import MODEL, SETTING, Handler, Server

WORDS = ["It", "answers", "200", "when", "the", "engine", "does,", "süß."]
PINGS = iter(range(3))


class Chat(Handler):
    def do_GET(self) -> None:
        self.reply(b"", 503 if next(PINGS, None) is not None else 200)

    def do_POST(self) -> None:
        body = json.loads(self.read_body())
        if body.get("max_tokens", 0) > 1000:
            error = {"message": "max_tokens is above 1000. Lower it.", "code": "invalid_value"}
            self.reply(json.dumps({"error": error}).encode(), 400)
        elif body.get("stream"):
            deltas = [f" {word}" if number else word for number, word in enumerate(WORDS)]
            chunks = [{"choices": [{"index": 0, "delta": {"content": delta}}]} for delta in deltas]
            usage = {"choices": [], "usage": {"completion_tokens": len(WORDS)}}
            self.reply_events([*map(json.dumps, [*chunks, usage]), "[DONE]"])
        else:
            self.reply(json.dumps({"choices": [{"index": 0, "message": {"content": " ".join(WORDS)}}]}).encode())


if SETTING("SM_VLLM_MAX_NUM_SEQS") == "3":
    print("serve: SM_VLLM_MAX_NUM_SEQS: 3 is odd. Use 4.", flush=True)
    sys.exit(2)
print(f"[   0.2 s] fetch model: {len(list(MODEL.iterdir()))} files, 0.1 s", flush=True)
server = Server(("127.0.0.1", int(os.environ["SAGEMAKER_BIND_TO_PORT"])), Chat)
signal.signal(signal.SIGTERM, lambda *_: threading.Thread(target=server.shutdown).start())
server.serve_forever(0.05)
