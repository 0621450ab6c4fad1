"""The lengths of requests, read from the logs that people have."""

from __future__ import annotations

import subprocess
import sys

import pytest

from handler.errors import SettingError
from model_packaging.sizing.request_log import read_lengths

OURS = """\
some text of a library
{"time": "2026-11-23T07:00:02.000Z", "event": "request_start", "prompt_tokens": 5}
{"time": "2026-11-23T07:00:02.000Z", "event": "request_end", "prompt_tokens": 5, "output_tokens": 3, "seconds": 2.0}
{"time": "2026-11-23T07:00:03.000Z", "event": "request_end", "prompt_tokens": 7, "output_tokens": 1, "seconds": 2.0}
{"time": "2026-11-23T07:00:04.000Z", "event": "request_end", "status": 400, "seconds": 0.1}
"""

# Reads a million lines, and prints the memory that it has needed at most, in MiB.
MILLION = """
from itertools import cycle, islice
from model_packaging.sizing.request_log import read_lengths
line = '{"time": "2026-11-23T%02d:%02d:%02d.5Z", "event": "request_end", "request_id": "%032x", "prompt_tokens": %d, '
line += '"output_tokens": %d, "seconds": 2.5, "end": "stop"}'
lines = [line % (n // 3600 % 24, n // 60 % 60, n % 60, n, 1 + n * 7919 % 16000, n * 31 % 900) for n in range(5000)]
found = read_lengths(islice(cycle(lines), 1_000_000), "generated")
assert found.requests == 1_000_000 and found.running
peak = next(line for line in open("/proc/self/status") if line.startswith("VmHWM:"))  # ru_maxrss is the parent's, too
print(int(peak.split()[1]) // 1024)
"""


def test_our_request_log() -> None:
    nested = '{"a": ' + "[" * 100_000
    assert read_lengths([*OURS.splitlines(), nested], "ours").ignored == 3
    found = read_lengths(OURS.splitlines(), "ours")
    assert (found.requests, found.ignored) == (2, 2)
    assert found.prompts == {5: 1, 7: 1}
    assert found.contexts == {6: 1, 7: 1}
    assert found.running == {1: 2.0, 2: 1.0}  # from 0 to 2 and from 1 to 3


@pytest.mark.parametrize("encoding", ["utf-8", "utf-8-sig"])
@pytest.mark.parametrize(
    "text",
    [
        "prompt_tokens,output_tokens\r\n5,3\r\n7,1\r\n",
        "TIMESTAMP,ContextTokens,GeneratedTokens\n2023-11-16 18:17:03,5,3\n2023-11-16 18:17:04,7,1\n",
        '{"input_tokens": 5, "completion_tokens": 3}\n{"num_prefill_tokens": 7, "num_decode_tokens": 1.0}\n',
        '{"prompt_tokens": 5, "completion_tokens": 3}\n{"prompt_tokens": 7, "completion_tokens": 1}\n',
    ],
)
def test_other_logs(text: str, encoding: str) -> None:
    found = read_lengths(text.encode(encoding).splitlines(), "other")
    assert (found.prompts, found.contexts, found.running) == ({5: 1, 7: 1}, {6: 1, 7: 1}, {})


def test_requests_that_the_plan_does_not_serve_are_counted_apart() -> None:
    lines = ["prompt_tokens,output_tokens", "5,3", "90,20", "110,1"]
    found = read_lengths(lines, "log", longest_prompt=100, longest=100)
    assert (found.requests, found.too_long) == (1, 2)


@pytest.mark.parametrize(
    "text",
    [
        '{"prompt_tokens": 5, "output_tokens": 1, "time": "?", "seconds": 2}\n{"prompt_tokens": 7, "output_tokens": 1}',
        f"prompt_tokens,output_tokens\n5,1\n{'9' * 200_000},1\n7,1",
    ],
)
def test_what_cannot_be_read_is_left_out(text: str) -> None:
    found = read_lengths(text.splitlines(), "log")
    assert (found.prompts, found.running) == ({5: 1, 7: 1}, {})


@pytest.mark.parametrize(
    "text", ["", "nothing\n", "a,b\n1,2\n", '{"prompt_tokens": 5}\n', "prompt_tokens,output_tokens\n"]
)
def test_a_log_without_lengths_is_an_error(text: str) -> None:
    with pytest.raises(SettingError, match="no request with both lengths"):
        read_lengths(text.splitlines(), "log")


def test_a_million_requests_need_little_memory() -> None:
    run = subprocess.run([sys.executable, "-c", MILLION], capture_output=True, text=True, check=True)
    assert int(run.stdout) < 300
