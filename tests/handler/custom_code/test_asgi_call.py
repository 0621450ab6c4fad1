"""An ASGI application that sends no more than the ASGI specification requires."""

from __future__ import annotations

from collections.abc import MutableMapping
from typing import Any

from handler.custom_code.asgi_call import Receive, Send, call_application
from handler.custom_code.code_contract import CodeReply, CodeRequest
from handler.custom_code.hook_caller import HookCaller


async def least(scope: MutableMapping[str, Any], receive: Receive, send: Send) -> None:
    await send({"type": "http.response.start", "status": 202})
    await send({"type": "http.response.body"})


def test_a_reply_may_have_neither_headers_nor_a_body() -> None:
    reply = call_application(least, HookCaller(), CodeRequest(b"", {}, "", ""))
    assert reply == CodeReply(b"", "application/octet-stream", 202)
