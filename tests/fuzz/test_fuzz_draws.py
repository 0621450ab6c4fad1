"""The fuzz draws the same from the same seed, draws everything, and calls wrong what is wrong."""

from __future__ import annotations

import pytest

from tests.fuzz.fuzz_run import Ran, overlapping, too_long
from tests.fuzz.fuzz_sequences import sequence
from tests.fuzz.fuzz_step import differs, reason_of
from tests.fuzz.fuzz_watch import Waited

EVERYTHING = (
    *(b'"%s":' % kind for kind in (b"json", b"regex", b"choice", b"grammar", b"structural_tag", b"json_object")),
    *(b'"guided_%s":' % kind for kind in (b"json", b"regex", b"choice", b"grammar")),
    *(b'"type": "%s"' % kind for kind in (b"json_object", b"json_schema", b"structural_tag")),
    *(
        b"POST %s " % route
        for route in (b"/invocations", b"/v1/chat/completions", b"/v1/completions", b"/v1/responses")
    ),
    *(
        b"POST %s " % route
        for route in (b"/v1/messages", b"/rerank", b"/score", b"/classify", b"/pooling", b"/v1/batches")
    ),
    *(b"POST %s " % route for route in (b"/tokenize", b"/detokenize", b"/v1/embeddings")),
    *(b"schema=tgi", b"schema=lmi", b"route=/v1/responses", b"application/jsonlines", b'"tool_choice": "required"'),
)


def test_a_seed_and_a_number_make_the_same_sequence() -> None:
    assert sequence(6, 7) == sequence(6, 7)
    assert sequence(6, 7) != sequence(7, 7)


def test_everything_is_drawn() -> None:
    steps = [step for number in range(1500) for step in sequence(6, number)]
    drawn = b"\n".join(sent.raw for step in steps for sent in step.requests)
    assert [each for each in EVERYTHING if each not in drawn] == []
    assert any(step.messages for step in steps)
    assert any(len(step.requests) == 2 for step in steps)


@pytest.mark.parametrize(
    ("whole", "streamed", "different"),
    [
        ((200, "application/json", b'{"choices":[]}'), (200, "text/event-stream", b"data: [DONE]\n\n"), False),
        (
            (400, "application/json", b'{"error":{"code":"a"}}'),
            (400, "application/json", b'{"error":{"code":"a"}}'),
            False,
        ),
        (
            (400, "application/json", b'{"error":{"code":"a"}}'),
            (400, "application/json", b'{"error":{"code":"b"}}'),
            True,
        ),
        ((400, "application/json", b'{"error":{"code":"a"}}'), (200, "text/event-stream", b"data: [DONE]\n\n"), True),
        ((200, "application/json", b"{}"), (200, "text/event-stream", b'data: {"error":{"code":"a"}}\n\n'), True),
        ((200, "application/json", b"{}"), (200, "text/event-stream", b""), True),
        (
            (200, "application/json", b"{}"),
            (400, "application/json", b'{"error":{"message":"not with stream"}}'),
            False,
        ),
        (
            (504, "application/json", b'{"error":{"code":"deadline_exceeded"}}'),
            (200, "text/event-stream", b"data: [DONE]\n\n"),
            False,
        ),
        (
            (400, "application/json", b'{"error":{"message":"9 of at most 8 (ENDPOINT_MAX_REPLY_LOGPROBS)"}}'),
            (200, "text/event-stream", b"data: [DONE]\n\n"),
            False,
        ),
    ],
)
def test_what_is_different_whole_and_streamed(
    whole: tuple[int, str, bytes], streamed: tuple[int, str, bytes], different: bool
) -> None:
    assert differs(reason_of(*whole), reason_of(*streamed)) is different


def test_only_what_ran_during_a_long_wait_is_suspected() -> None:
    waits = [Waited("ping", 10.0, 10.5), Waited("ping", 11.0, 13.0), Waited("ping", 20.0, 20.1, "status 500")]
    slow, wrong = too_long(waits, 1.0, 0.0)
    assert (slow, wrong) == (waits[1], waits[2])
    ran = [Ran(1, 10.0, 10.9), Ran(2, 10.5, 11.5), Ran(3, 12.0, 12.1), Ran(4, 13.5, 14.0)]
    assert [one.number for one in overlapping(ran, slow)] == [2, 3]
