"""Reads the lengths of requests from a log, one line at a time, into histograms.

It reads this container's request log (`request_end`), any other JSON lines, and CSV with a header. A line that is not a
request, or has no lengths, is counted and ignored. `trace:chat`, `trace:code` ... are lengths like those of published
traces, drawn from their quantiles. The file of the traces has each one's source, its moments, and the lengths at each
twentieth of its requests. Prompt and output are drawn independently of each other.
"""

from __future__ import annotations

import csv
import json
import random
import sys
from array import array
from bisect import bisect_right
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import datetime
from itertools import chain, pairwise
from math import inf
from pathlib import Path
from typing import Any, Final

import msgspec

from handler.errors import SettingError
from handler.neuron.buckets.compiled_buckets import CompiledBuckets

# Names of the two lengths: this container's, OpenAI's, and those of published traces.
PROMPT: Final = ("prompt_tokens", "input_tokens", "ContextTokens", "num_prefill_tokens", "prompt_len", "input_len")
OUTPUT: Final = ("output_tokens", "completion_tokens", "GeneratedTokens", "num_decode_tokens", "output_len")
ENDS: Final = ("", "request_end")
TRACES: Final = Path(__file__).with_name("published_traces.json")
TRACE_PREFIX: Final = "trace:"


@dataclass(slots=True)
class RequestLengths:
    """The lengths of the requests of a log.

    :ivar prompts: requests by the tokens of their prompts.
    :ivar contexts: decode steps by the tokens of context of their sequence, the new one included.
    :ivar running: seconds by the number of requests that ran at once; empty if the log has no times.
    :ivar ignored: lines without lengths.
    :ivar too_long: requests above the limits, which the endpoint does not serve. They are not counted elsewhere.
    """

    requests: int = 0
    output_tokens: int = 0
    ignored: int = 0
    too_long: int = 0
    prompts: Counter[int] = field(default_factory=Counter)
    contexts: dict[int, int] = field(default_factory=dict)
    running: dict[int, float] = field(default_factory=dict)

    def prompt_percentile(self, share: float) -> int:
        """The length that this share of the prompts does not exceed."""
        return int(_percentile(self.prompts, share))

    def running_percentile(self, share: float) -> int:
        """The number of requests that were not exceeded for this share of the time; 0 if it is not known."""
        return int(_percentile(self.running, share))


def read_log(log: str, buckets: CompiledBuckets) -> RequestLengths:
    """Reads a log for a plan.

    :param log: a file, `-` for standard input, or `trace:NAME`.
    :param buckets: the plan's. Longer requests are counted apart.
    :raises SettingError: it cannot be read, or has no request with lengths.
    """
    limits = buckets.decode[-1] if buckets.segmented else buckets.prefill[-1], buckets.decode[-1]
    if log == "-":
        return read_lengths(sys.stdin.buffer, "standard input", *limits)
    if log.startswith(TRACE_PREFIX):
        return read_lengths(trace_lines(log.removeprefix(TRACE_PREFIX)), log, *limits)
    try:
        with Path(log).open("rb") as lines:
            return read_lengths(lines, log, *limits)
    except OSError as error:
        raise SettingError("--log", f"{log} cannot be read ({error.strerror})", "Give a file, or - .") from None


def read_lengths(
    lines: Iterable[str | bytes], name: str, longest_prompt: float = inf, longest: float = inf
) -> RequestLengths:
    """Reads a log. The memory that it needs grows with the longest request, and by 16 bytes a request with times.

    :param name: the log's name, for errors.
    :param longest_prompt, longest: the plan's limits: tokens of a prompt, and of a prompt with its output.
    :raises SettingError: it has no request with lengths.
    """
    lengths = RequestLengths()
    # Steps by length, as changes: a request has one step at each length between its prompt and its end.
    changes: Counter[int] = Counter()
    starts, ends = array("d"), array("d")
    for row in _requests(iter(lines), lengths):
        prompt, output = _number(row, PROMPT), _number(row, OUTPUT)
        if not prompt or prompt < 0 or output is None or output < 0:
            lengths.ignored += 1
            continue
        if prompt > longest_prompt or prompt + output > longest:
            lengths.too_long += 1
            continue
        lengths.requests += 1
        lengths.output_tokens += output
        lengths.prompts[prompt] += 1
        if output > 1:
            changes[prompt + 1] += 1
            changes[prompt + output] -= 1
        time, seconds = row.get("time"), row.get("seconds")
        if PROMPT[0] in row and isinstance(time, str) and isinstance(seconds, int | float) and seconds:
            with suppress(ValueError, OverflowError):  # the lengths count without the time
                end = datetime.fromisoformat(time).timestamp()
                starts.append(end - seconds)
                ends.append(end)
    if not lengths.requests:
        fix = f"Give JSON lines or CSV with {PROMPT[0]} and {OUTPUT[0]}: the log of ENDPOINT_LOG_REQUESTS has them."
        why = f"{name} has no request with both lengths" + (" that the plan serves" if lengths.too_long else "")
        raise SettingError("--log", why, fix)
    lengths.contexts = _filled(changes)
    lengths.running = _running(starts, ends)
    return lengths


def _requests(lines: Iterator[str | bytes], lengths: RequestLengths) -> Iterator[Mapping[str, object]]:
    first = next((line for line in lines if line.strip()), b"")
    text = first.decode("utf-8", "replace") if isinstance(first, bytes) else first
    text = text.removeprefix("\ufeff")  # the mark that Excel and PowerShell write
    if not text.lstrip().startswith("{") and "," in text:
        texts = (line.decode("utf-8", "replace") if isinstance(line, bytes) else line for line in lines)
        rows = csv.DictReader(chain((text,), texts))
        while True:
            try:
                yield next(rows)
            except csv.Error:
                lengths.ignored += 1
            except StopIteration:
                return
    decode = msgspec.json.Decoder(dict[str, object]).decode
    for line in chain((text,), lines):
        try:
            row = decode(line)
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
            lengths.ignored += 1
            continue
        if row.get("event", "") in ENDS:
            yield row


def _number(row: Mapping[str, object], names: tuple[str, ...]) -> int | None:
    for name in names:
        value = row.get(name)
        if isinstance(value, int | float | str):
            try:
                return int(float(value))
            except (ValueError, OverflowError):
                return None
    return None


def _filled(changes: Mapping[int, int]) -> dict[int, int]:
    """Steps by length, from the changes of their number."""
    steps: dict[int, int] = {}
    now, places = 0, sorted(changes)
    for place, after in pairwise(places):
        now += changes[place]
        if now:
            steps.update(dict.fromkeys(range(place, after), now))
    return steps


def _running(starts: array[float], ends: array[float]) -> dict[int, float]:
    """Seconds by the number of requests that ran."""
    begun, ended = sorted(starts), sorted(ends)
    seconds: dict[int, float] = {}
    now, at, before = 0, 0, 0.0
    for end in ended:
        while at < len(begun) and begun[at] <= end:
            if now:
                seconds[now] = seconds.get(now, 0.0) + begun[at] - before
            before, now, at = begun[at], now + 1, at + 1
        seconds[now] = seconds.get(now, 0.0) + end - before
        before, now = end, now - 1
    return seconds


def _percentile(weights: Mapping[int, float], share: float) -> int:
    rest = share * sum(weights.values())
    for value in sorted(weights):
        rest -= weights[value]
        if rest <= 0:
            return value
    return max(weights, default=0)


def published_traces() -> Mapping[str, Mapping[str, Any]]:
    """The traces by name, as in the file."""
    traces: Mapping[str, Mapping[str, Any]] = json.loads(TRACES.read_text(encoding="utf-8"))
    return traces


def trace_lines(name: str) -> Iterator[bytes]:
    """The requests of a trace as JSON lines, as many as the trace has.

    :raises SettingError: there is no trace with this name.
    """
    traces = published_traces()
    if name not in traces:
        raise SettingError("--log", f"there is no trace '{name[:40]}'", f"Use one of {', '.join(traces)}.")
    trace, draw = traces[name], random.Random(0)
    for _ in range(trace["requests"]):
        prompt, output = (_drawn(trace[kind], draw.random()) for kind in ("prompt", "output"))
        yield b'{"prompt_tokens": %d, "output_tokens": %d}' % (prompt, output)


def _drawn(lengths: Mapping[str, Any], share: float) -> int:
    """The length that this share of the requests does not exceed: a straight line between two quantiles."""
    quantiles = lengths["quantiles"]
    points = [*(at / (len(quantiles) - 1) for at in range(len(quantiles) - 1)), 0.99, 1.0]
    values = [*quantiles[:-1], lengths["p99"], quantiles[-1]]
    after = min(bisect_right(points, share), len(points) - 1)
    low, high = points[after - 1], points[after]
    value: float = values[after - 1] + (values[after] - values[after - 1]) * (share - low) / (high - low)
    return round(value)
