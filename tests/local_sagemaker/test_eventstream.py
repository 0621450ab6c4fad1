from __future__ import annotations

from itertools import pairwise

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
