"""Runs `vllm bench serve`, vLLM's own load generator, on both servers alternately, to confirm this benchmark's results.

It is a general client and uses most of a core itself, so on two cores its ratios are nearer to 1.
"""

from __future__ import annotations

import json
import subprocess
import sys
from collections import defaultdict
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

from benchmarks.lib.contestant import Contestant
from benchmarks.lib.contestant_server import ContestantServer
from benchmarks.lib.measurements import Comparison, compare
from benchmarks.lib.report import BenchmarkReport

CONCURRENCY = 32
REQUESTS = 192
LIMIT_S = 240.0


@dataclass(frozen=True, slots=True)
class OpinionMetric:
    """A metric, and its name in the output of `vllm bench serve`."""

    figure: str
    key: str
    unit: str
    better: str = "less"


METRICS = (
    OpinionMetric("opinion_stream_tps_c32", "output_throughput", "tokens/s", "more"),
    OpinionMetric("opinion_ttft_p50_c32", "median_ttft_ms", "ms"),
    OpinionMetric("opinion_itl_p99_c32", "p99_itl_ms", "ms"),
)


class OpinionFailed(Exception):
    """`vllm bench serve` did not run, or requests failed."""


def opinions(
    sides: Sequence[Contestant], model: Path, scratch: Path, pairs: int, report: BenchmarkReport
) -> list[Comparison | None]:
    """Measures both sides.

    :raises OpinionFailed: `vllm bench serve` did not run, or requests failed.
    :raises ServerFailed: a server did not start.
    """
    found: dict[str, list[Mapping[str, float]]] = defaultdict(list)
    with ExitStack() as stack:
        servers = [
            stack.enter_context(ContestantServer(side, report.out.parent / f"bench-opinion-{side.name}.log"))
            for side in sides
        ]
        for pair in range(-1, pairs):  # the first warms up
            for server in servers[::-1] if pair % 2 else servers:
                result = _ask(server.contestant.port, model, scratch / "opinion.json")
                report.line({"record": "opinion", "side": server.contestant.name, "pair": pair, **result})
                if pair >= 0:
                    found[server.contestant.name].append(result)
    return compared(found["ours"], found["theirs"])


def compared(ours: Sequence[Mapping[str, float]], theirs: Sequence[Mapping[str, float]]) -> list[Comparison | None]:
    both = list(zip(ours, theirs, strict=True))
    return [
        compare(one.figure, [(a[one.key], b[one.key]) for a, b in both], one.unit, better=one.better) for one in METRICS
    ]


def _ask(port: int, model: Path, result: Path) -> dict[str, float]:
    result.unlink(missing_ok=True)
    command = (
        str(Path(sys.executable).parent / "vllm"),
        *("bench", "serve", "--backend", "openai-chat", "--endpoint", "/v1/chat/completions"),
        *("--base-url", f"http://127.0.0.1:{port}", "--model", "model", "--tokenizer", str(model)),
        *("--dataset-name", "random", "--random-input-len", "32", "--random-output-len", "64", "--ignore-eos"),
        *("--num-prompts", str(REQUESTS), "--max-concurrency", str(CONCURRENCY), "--temperature", "0"),
        *("--percentile-metrics", "ttft,itl", "--metric-percentiles", "99", "--disable-tqdm"),
        *("--save-result", "--result-dir", str(result.parent), "--result-filename", result.name),
    )
    done = subprocess.run(command, capture_output=True, text=True, timeout=LIMIT_S, check=False)
    if done.returncode != 0 or not result.exists():
        raise OpinionFailed(f"vllm bench serve ended with {done.returncode}: {(done.stderr or done.stdout)[-800:]}")
    document = json.loads(result.read_text())
    if document["completed"] != REQUESTS:
        raise OpinionFailed(f"vllm bench serve: {document['completed']} of {REQUESTS} requests were answered")
    return {one.key: float(document[one.key]) for one in METRICS}
