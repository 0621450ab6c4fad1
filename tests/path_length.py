"""`python -m tests.path_length`: the files that a streamed chat passes, from a client's bytes to its tokens.

It starts the CPU engine with the sample model and looks at the stacks of the serving process's loop: whenever a task
begins, when the prompt is encoded, when vLLM's core gets the request, and when a token is written to the client. A file
on one of these stacks passes the request on. What is called and has returned before is not on the path.
"""

from __future__ import annotations

import http.client
import json
import os
import socket
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

from container.application import RequestRouter, create_app
from container.http.connections import Connections
from container.http.reply_buffer import ReplyBuffer
from container.service import Service
from handler.config.loading.config_loader import load
from handler.engine.event_loop import LoopThread
from handler.engine.generation.prompt_renderer import PromptRenderer
from handler.startup.lifecycle import ServingStatus
from handler.startup.start import start

ROOT = Path(__file__).parents[1]
CHAT = {"messages": [{"role": "user", "content": "What does /ping mean?"}], "max_tokens": 4, "stream": True}


class SeenPath:
    """The files, in the order in which they were seen."""

    def __init__(self) -> None:
        self.files: dict[str, None] = {}

    def watch(self, owner: Any, name: str) -> None:
        """Looks at the stack of each call of a function."""
        function: Callable[..., Any] = getattr(owner, name)

        def watched(*arguments: Any, **named: Any) -> Any:
            self.look()
            return function(*arguments, **named)

        setattr(owner, name, watched)

    def look(self) -> None:
        frame, stack = sys._getframe(2), []
        while frame is not None:
            file = Path(frame.f_code.co_filename)
            if file.is_relative_to(ROOT) and file.relative_to(ROOT).parts[0] in ("container", "handler"):
                stack.append(str(file.relative_to(ROOT)))
            frame = frame.f_back  # type: ignore[assignment]  # the first one has none
        self.files.update(dict.fromkeys(reversed(stack)))


def main() -> int:
    """Prints the files and their number."""
    os.environ.setdefault("ENDPOINT_MODEL", str(ROOT / "sample_model" / "weights"))
    service = Service.of(load(os.environ))
    start(service)
    assert service.lifecycle.status.state is ServingStatus.READY, service.lifecycle.status
    engine, path = service.engine, SeenPath()
    assert engine is not None
    answer = RequestRouter(service, create_app(service)).answer
    connections = Connections(service.loop, answer, service.observer, service.bodies)
    path.watch(PromptRenderer, "text")
    path.watch(PromptRenderer, "chat")
    path.watch(LoopThread, "task")
    adapter: Any = engine._adapter  # it has vLLM's own client
    path.watch(adapter.client.engine_core, "add_request_async")
    path.watch(ReplyBuffer, "write")
    ours, theirs = socket.socketpair()
    service.loop.call(connections.take, theirs)
    client = http.client.HTTPConnection("localhost")
    client.sock = ours
    client.request("POST", "/v1/chat/completions", json.dumps(CHAT), {"Content-Type": "application/json"})
    reply = client.getresponse().read()
    assert reply.endswith(b"data: [DONE]\n\n"), reply
    print(*path.files, f"{len(path.files)} files", sep="\n")
    return 0


if __name__ == "__main__":
    status = main()
    sys.stdout.flush()
    os._exit(status)  # the engine's loop runs on
