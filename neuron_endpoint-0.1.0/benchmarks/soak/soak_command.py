"""`python -m benchmarks soak`: starts a server, runs the soak test on it, and prints what it still holds."""

from __future__ import annotations

import asyncio
import dataclasses
import statistics
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import click
import msgspec
import psutil

from benchmarks.lib.contestant import KINDS, SAMPLE_MODEL, Contestant, EngineShape
from benchmarks.lib.contestant_server import ContestantServer, ServerFailed
from benchmarks.soak.soak import SIZES, SoakPlan, soak
from benchmarks.soak.soak_requests import OPENAI, OURS
from benchmarks.soak.soak_result import Soak
from benchmarks.soak.soak_state import Held, StateWatch
from handler.processes import free_port

SLOTS = 16
PARTS = 10
OURS_SETTINGS = {
    "ENDPOINT_ENABLE_SESSIONS": "true",
    "ENDPOINT_SESSION_EXPIRATION": "60",
    "SM_VLLM_STRUCTURED_OUTPUTS_CONFIG": '{"disable_any_whitespace": true}',
}
COLUMNS = [column.name for column in dataclasses.fields(Held) if column.name not in ("in_engine", "core_threads")]


@click.command("soak")
@click.option("--minutes", default=30.0, show_default=True, help="After the warm-up.")
@click.option("--warm-minutes", default=5.0, show_default=True)
@click.option(
    "--visitors", default=48, show_default=True, type=click.IntRange(1), help="At a time; there are 16 slots."
)
@click.option("--seed", default=0, show_default=True, help="Of the visitors' dice.")
@click.option("--kv-blocks", default=160, show_default=True, help="Of the KV cache (128 tokens each); 0: all of 1 GB.")
@click.option("--sizes", default=SIZES, show_default=True, help="Prompts of 1 to so many tokens come before all else.")
@click.option("--server", default="container", show_default=True, type=click.Choice(list(KINDS)))
@click.option("--openai-only", is_flag=True, help="Only what `vllm serve` answers too.")
@click.option("--out", default=Path("build/soak.json"), show_default=True, type=click.Path(path_type=Path))
def soak_command(
    minutes: float,
    warm_minutes: float,
    visitors: int,
    seed: int,
    kv_blocks: int,
    sizes: int,
    server: str,
    openai_only: bool,
    out: Path,
) -> None:
    """Saturate a server with clients of every kind. Exit status 1 for a leak, a wrong reply, or 5 % more memory."""
    ours = server == "container" and not openai_only
    plan = SoakPlan(minutes * 60, warm_minutes * 60, visitors, seed, OURS if ours else OPENAI, ours, sizes)
    out.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix="soak-") as scratch:
        contestant = _contestant(server, Path(scratch), kv_blocks)
        try:
            with ContestantServer(contestant, out.with_suffix(".log")) as served:
                watch = StateWatch(served.pid, contestant.port)
                result = asyncio.run(soak(watch, contestant.port, plan, SLOTS))
        except (ServerFailed, LookupError, OSError, psutil.Error) as error:
            raise click.ClickException(f"the server failed: {error}") from None
    out.write_bytes(msgspec.json.encode(result))
    for line in lines(result, plan):
        click.echo(line)
    violations = result.violations()
    if server == "container" and "Traceback" in out.with_suffix(".log").read_text(errors="replace"):
        violations.append(f"a traceback in {out.with_suffix('.log')}")
    for violation in violations:
        click.echo(f"WRONG: {violation}")
    sys.exit(bool(violations))


def lines(result: Soak, plan: SoakPlan) -> Iterator[str]:
    """Yields the results as tables."""
    total = sum(result.visits.values())
    yield f"{total:,} visits in {plan.seconds / 60:.1f} min, {len(result.wrong)} of them answered wrongly:"
    for kind, number in result.visits.most_common():
        yield f"  {number:8,}  {kind}"
    yield f"requests waited for a slot in {result.saturated():.0%} of {len(result.samples)} samples"
    yield "minute      " + " ".join(f"{name:>9}" for name in COLUMNS)
    for name, held in (("start", result.start), ("all sizes", result.filled), ("warm, idle", result.warm)):
        if held is not None:
            yield _row(name, [held])
    for part in range(PARTS):
        low, high = (plan.seconds * (part + step) / PARTS for step in (0, 1))
        seen = [held for at, held in result.samples if low <= at < high]
        if seen:
            yield _row(f"{low / 60:.1f}-{high / 60:.1f}", seen)
    yield _row("end, idle", [result.end])
    yield ", ".join(f"{name} {share:+.2%}" for name, share in result.growth().items())


def _row(name: str, held: list[Held]) -> str:
    return f"{name:11} " + " ".join(
        f"{statistics.median(getattr(one, column) for one in held):9.0f}" for column in COLUMNS
    )


def _contestant(kind: str, scratch: Path, kv_blocks: int) -> Contestant:
    made = KINDS[kind](kind, free_port(), SAMPLE_MODEL, scratch, EngineShape(max_num_seqs=SLOTS))
    if kind == "container":
        blocks = {"SM_VLLM_NUM_GPU_BLOCKS_OVERRIDE": str(kv_blocks)} if kv_blocks else {}
        return dataclasses.replace(made, environment={**made.environment, **OURS_SETTINGS, **blocks})
    more = ("--num-gpu-blocks-override", str(kv_blocks)) if kv_blocks else ()
    return dataclasses.replace(made, command=(*made.command, *more))
