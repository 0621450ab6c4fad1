"""`python -m benchmarks tune-log`: the time and memory of `neuron-endpoint size --log` on a long request log."""

from __future__ import annotations

import json
import os
import random
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path

import click

# Requests a second, and tokens, of the generated log: lognormal, as traffic is.
RATE = 20.0
PROMPT, OUTPUT = (6.7, 1.0), (5.0, 0.8)
LONGEST = 16_000


@click.command("tune-log")
@click.option("--requests", default=1_000_000, show_default=True, help="Lines of the log.")
def tune_log(requests: int) -> None:
    """Measure size --log on a generated log in our own format: seconds, and the peak of its memory."""
    with tempfile.TemporaryDirectory() as directory:
        log = Path(directory) / "endpoint.log"
        with log.open("w") as file:
            file.writelines(log_lines(requests))
        words = ["size", "model", "--log", str(log), "--line", "nxdi-0.16", "--json", "--env"]
        command = [sys.executable, "-m", "model_packaging", *words]
        began = time.monotonic()
        process = subprocess.Popen(
            command, env={**os.environ, "SM_VLLM_MAX_MODEL_LEN": "32768"}, stdout=subprocess.DEVNULL
        )
        _, status, usage = os.wait4(process.pid, 0)
        seconds = time.monotonic() - began
    if status:
        raise click.ClickException(f"size ended with {os.waitstatus_to_exitcode(status)}")
    cpu = usage.ru_utime + usage.ru_stime
    click.echo(f"{requests:,} requests: {seconds:.1f} s ({cpu:.1f} s of CPU), {usage.ru_maxrss / 1024:.0f} MiB at most")


def log_lines(requests: int, seed: int = 2) -> Iterator[str]:
    """Lines as this container logs them, with their usual fields."""
    draw, now = random.Random(seed), 1_760_000_000.0
    for number in range(requests):
        now += draw.expovariate(RATE)
        moment = datetime.fromtimestamp(now, UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")
        prompt, output = (1 + int(draw.lognormvariate(*of)) for of in (PROMPT, OUTPUT))
        line = {
            "time": moment,
            "level": "info",
            "event": "request_end",
            "logger": "container.telemetry.request_observer",
            "message": f"{number:032x} /invocations 200 stop, 1.234 s, {output} tokens",
            "request_id": f"{number:032x}",
            "method": "POST",
            "route": "/invocations",
            "status": 200,
            "stream": True,
            "prompt_tokens": min(prompt, LONGEST),
            "output_tokens": min(output, LONGEST),
            "first_token_seconds": 0.1,
            "between_tokens_seconds": 0.01,
            "seconds": round(draw.uniform(0.5, 4), 4),
            "end": "stop",
        }
        yield json.dumps(line) + "\n"
