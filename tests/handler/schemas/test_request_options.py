"""What decides whose a body is and how its stream is framed, where the body leaves it open."""

from __future__ import annotations

from typing import Any

import pytest

from handler.errors import InvalidField, MissingField
from handler.schemas import dispatch
from handler.schemas.framing import lines
from handler.schemas.openai.chat import ChatReply
from handler.schemas.openai.completion import CompletionReply
from handler.schemas.tgi_lmi.request_options import RequestOptions
from tests.handler.schemas.parsing_engine import ParsingEngine

ENGINE: Any = ParsingEngine()
LINES, EVENTS = "application/jsonlines", "text/event-stream"
CHAT = {"messages": [{"role": "user", "content": "a"}]}
INPUTS = {"inputs": "a"}


def asked(accept: str = "", schema: str = "", setting: str = "lmi", formatter: str | None = None) -> RequestOptions:
    return RequestOptions(
        accept=tuple(accept.split()),
        attributes={"schema": schema} if schema else {},
        inputs_schema=setting,
        output_formatter=formatter,
    )


# The table of docs/requests.md. Framing is a stream's media type; None: the reply is whole.
@pytest.mark.parametrize(
    ("body", "beside", "framing", "is_list"),
    [
        (INPUTS, asked(), None, False),
        (INPUTS, asked(setting="tgi"), None, True),
        (INPUTS, asked(schema="tgi"), None, True),
        (INPUTS, asked(schema="lmi", setting="tgi"), None, False),
        (INPUTS, asked(accept=EVENTS), None, False),
        ({**INPUTS, "stream": True}, asked(), LINES, None),
        ({**INPUTS, "stream": True}, asked(schema="TGI"), EVENTS, None),
        ({**INPUTS, "stream": True}, asked(accept=EVENTS), EVENTS, None),
        ({**INPUTS, "stream": True}, asked(accept=f"*/* {EVENTS} {LINES}"), EVENTS, None),
        ({**INPUTS, "stream": True}, asked(accept="application/json */*"), LINES, None),
        ({**INPUTS, "stream": True}, asked(schema="tgi", accept="application/x-ndjson"), LINES, None),
        ({**INPUTS, "stream": True}, asked(schema="tgi", accept="application/x-jsonlines"), LINES, None),
        ({**INPUTS, "stream": True}, asked(formatter="sse"), EVENTS, None),
        ({**INPUTS, "stream": True}, asked(formatter="sse", accept=LINES), EVENTS, None),
        ({**INPUTS, "stream": True}, asked(formatter="json"), None, False),
        (INPUTS, asked(formatter="jsonlines"), LINES, None),
        ({**INPUTS, "parameters": {"output_formatter": "sse"}}, asked(formatter="jsonlines"), EVENTS, None),
        ({**INPUTS, "stream": True, "parameters": {"output_formatter": "json"}}, asked(), None, False),
        ({**CHAT, "stream": True}, asked(), EVENTS, None),
        ({**CHAT, "stream": True}, asked(accept=LINES), LINES, None),
        ({**CHAT, "stream": True}, asked(formatter="jsonlines"), LINES, None),
        (CHAT, asked(formatter="jsonlines"), None, False),
    ],
)
def test_the_form_of_a_reply(
    body: dict[str, Any], beside: RequestOptions, framing: str | None, is_list: bool | None
) -> None:
    call = dispatch.parse(body, ENGINE, beside)
    assert call.stream is (framing is not None)
    if framing is not None:
        assert call.reply.stream_content_type.split(";")[0] == framing
    else:
        assert call.reply.whole("x", [1], "stop", None).startswith(b"[") is is_list


def test_a_schema_attribute_decides_between_two_prompts_and_a_missing_one_is_named() -> None:
    both = {**CHAT, "prompt": "a"}
    assert isinstance(dispatch.parse(both, ENGINE, asked(schema="chat")).reply, ChatReply)
    assert isinstance(dispatch.parse(both, ENGINE, asked(schema="completion")).reply, CompletionReply)
    with pytest.raises(MissingField) as caught:
        dispatch.parse(CHAT, ENGINE, asked(schema="tgi"))
    assert caught.value.param == "inputs"
    with pytest.raises(InvalidField, match="chat, completion, tgi, lmi"):
        dispatch.parse(CHAT, ENGINE, asked(schema="bedrock"))


@pytest.mark.parametrize(
    ("events", "expected"),
    [
        (b"", b""),
        (b"data: [DONE]\n\n", b""),
        (b'data: {"a":1}\n\n', b'{"a":1}\n'),
        (b'data: {"a":1}\n\ndata: {"b":2}\n\ndata: [DONE]\n\n', b'{"a":1}\n{"b":2}\n'),
        (b'data: {"a":"\\n\\ndata: [DONE]\\n\\n"}\n\n', b'{"a":"\\n\\ndata: [DONE]\\n\\n"}\n'),
    ],
)
def test_events_as_lines(events: bytes, expected: bytes) -> None:
    assert lines(events) == expected
