from __future__ import annotations

from itertools import pairwise

import pytest
from botocore.eventstream import EventStreamBuffer
from hypothesis import given
from hypothesis import strategies as st

from local_sagemaker.gateway import event_stream as eventstream

HEADERS = st.dictionaries(
    st.text(min_size=1, max_size=60).filter(lambda name: len(name.encode()) < 256),
    st.text(max_size=300),
    max_size=5,
)
FRAMES = st.lists(st.tuples(HEADERS, st.binary(max_size=600)), min_size=1, max_size=4)


@given(FRAMES, st.data())
def test_botocore_reads_back_every_frame_however_the_bytes_arrive(
    frames: list[tuple[dict[str, str], bytes]], data: st.DataObject
) -> None:
    wire = b"".join(eventstream.encode(tuple(headers.items()), payload) for headers, payload in frames)
    cuts = sorted(data.draw(st.sets(st.integers(1, len(wire)), max_size=8)) | {0, len(wire)})
    buffer = EventStreamBuffer()
    decoded = []
    for start, end in pairwise(cuts):
        buffer.add_data(wire[start:end])
        decoded += [(message.headers, message.payload) for message in buffer]
    assert decoded == frames


@pytest.mark.parametrize(
    ("headers", "payload", "said"),
    [
        ((("", "value"),), b"", "1 to 255 bytes"),
        ((("n" * 256, "value"),), b"", "1 to 255 bytes"),
        ((("name", "v" * 32768),), b"", "up to 32767 bytes"),
        (tuple((f"{n}", "v" * 32767) for n in range(5)), b"", "bytes of headers"),
        ((), bytes(24 * 1024 * 1024 + 1), "a payload of 25165825 bytes"),
    ],
)
def test_what_no_decoder_takes_is_refused(headers: tuple[tuple[str, str], ...], payload: bytes, said: str) -> None:
    with pytest.raises(ValueError, match=said):
        eventstream.encode(headers, payload)
