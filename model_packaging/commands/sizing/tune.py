"""`neuron-endpoint tune`."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import click

from model_packaging.console.options import json_option, plan_options, settings_options
from model_packaging.console.output import print_json

if TYPE_CHECKING:
    from handler.neuron.buckets.compiled_buckets import CompiledBuckets
    from model_packaging.tuning.length_log import RequestLengths
    from model_packaging.tuning.plan_cost import PlanCost
    from model_packaging.tuning.tuned_plan import Tuning


@click.command("tune")
@settings_options
@plan_options
@click.option("--graphs", type=click.IntRange(min=2), help="Graphs to compile at most; default: as many as today.")
@click.option("--ttft", type=float, help="At most so many seconds to the first token, as predicted.")
@click.option("--output", type=click.Path(dir_okay=False), help="Write the document to this file.")
@click.option("--plot", type=click.Path(dir_okay=False, path_type=Path), help="Plot it: .svg, .png or .pdf.")
@click.option("--watch", metavar="URL", help="Watch the /metrics of an endpoint (http://host:8080) for other lengths.")
@click.option("--poll", type=click.FloatRange(min=0.1), default=60.0, show_default=True, help="Seconds of --watch.")
@click.option("--polls", type=click.IntRange(min=1), help="End --watch after so many; default: when traffic has moved.")
@json_option
@click.argument("log")
@click.argument("model", required=False)
def command(
    environ: Mapping[str, str],
    line: str | None,
    instance: str | None,
    graphs: int | None,
    ttft: float | None,
    output: str | None,
    plot: Path | None,
    watch: str | None,
    poll: float,
    polls: int | None,
    as_json: bool,
    log: str,
    model: str | None,
) -> None:
    """Chooses buckets, batches, sequences and segments for the lengths of a request log.

    LOG is this container's log, JSON lines or CSV with prompt_tokens and output_tokens; - is standard input;
    trace:chat, trace:code and trace:summarization are like published traces. Prints what today's plan and the proposed
    one compute, and the document to deploy. MODEL is a directory, s3://bucket/prefix or a hub id; default: the
    settings' own. The counts are exact for requests that run one at a time.
    """
    from handler.config.loading.config_loader import load
    from handler.neuron.checkpoint.checkpoint_reader import read_facts
    from handler.neuron.hardware.current_machine import this_machine
    from model_packaging.load_plot import check as check_plot
    from model_packaging.tuning.plan_cost import planned_buckets
    from model_packaging.tuning.tuned_plan import tune

    if plot:
        check_plot(plot)
    config = load(environ, model=model)
    config = replace(config, instance=instance or config.instance, line=line or config.line)
    facts, machine = read_facts(config.model), this_machine(config)
    _, buckets = planned_buckets(config, facts, machine)
    lengths = _lengths(log, buckets)
    tuning = tune(config, facts, machine, lengths, graphs=graphs, ttft=ttft)
    _print(tuning, lengths, output, as_json)
    if plot:
        from model_packaging.tuning.padding_plot import padding_plot

        padding_plot(tuning, lengths).savefig(plot)
    if watch:
        from model_packaging.tuning.traffic_watch import watch_traffic

        moved = watch_traffic(watch, tuning.proposed, poll, polls, lambda text: click.echo(text, err=as_json))
        sys.exit(1 if moved else 0)


def _lengths(log: str, buckets: CompiledBuckets) -> RequestLengths:
    from handler.errors import SettingError
    from model_packaging.tuning.length_log import read_lengths
    from model_packaging.tuning.published_traces import PREFIX, trace_lines

    limits = buckets.decode[-1] if buckets.segmented else buckets.prefill[-1], buckets.decode[-1]
    if log == "-":
        return read_lengths(sys.stdin.buffer, "standard input", *limits)
    if log.startswith(PREFIX):
        return read_lengths(trace_lines(log.removeprefix(PREFIX)), log, *limits)
    try:
        with Path(log).open("rb") as lines:
            return read_lengths(lines, log, *limits)
    except OSError as error:
        raise SettingError("LOG", f"{log} cannot be read ({error.strerror})", "Give a file, or - .") from None


def _print(tuning: Tuning, lengths: RequestLengths, output: str | None, as_json: bool) -> None:
    from handler.config.config_rows import to_document

    text = to_document(tuning.config)
    if output:
        Path(output).write_text(text, encoding="utf-8")
    if as_json:
        requests = {"requests": lengths.requests, "ignored": lengths.ignored, "too_long": lengths.too_long}
        print_json({**requests, **tuning.document(), "document": text})
        return
    from model_packaging.console.tables import json_text, plain_table, show

    today, proposed = _column(tuning.today), _column(tuning.proposed)
    rows = [(name, today[name], proposed[name]) for name in today]
    show(
        f"{lengths.requests:,} requests on {tuning.proposed.plan.line}. {lengths.too_long:,} were too long for it, and "
        f"{lengths.ignored:,} lines had no lengths.",
        plain_table(("", "today", "proposed"), rows),
        "Padding saved: " + ", ".join(f"{share:.0%} in {phase}" for phase, share in tuning.saved().items()) + ".",
    )
    if tuning.changed:
        changes = [(name, json_text(old), json_text(new)) for name, (old, new) in tuning.changed.items()]
        show(plain_table(("changed", "today", "proposed"), changes))
    if not output:
        click.echo(text, nl=False)


def _column(cost: PlanCost) -> dict[str, str]:
    def phase(name: str, asked: int, computed: int) -> dict[str, str]:
        share = f"{(computed - asked) / computed:.1%}" if computed else "-"
        return {f"{name}: tokens asked": f"{asked:,}", f"{name}: computed": f"{computed:,}", f"{name}: padding": share}

    memory, buckets = cost.memory, cost.buckets
    seconds = cost.compile_seconds
    return {
        "prefill segment" if buckets.segmented else "prefill buckets": " ".join(map(str, buckets.prefill)),
        "decode buckets": " ".join(map(str, buckets.decode)),
        "batch buckets": " ".join(map(str, buckets.batches)),
        **phase("prefill", cost.prefill.asked, cost.prefill.computed),
        **phase("decode", cost.decode.asked, cost.decode.computed),
        "sequences computed for each that ran": "-" if cost.batch is None else f"{cost.batch:.2f}",
        "graphs": str(buckets.graphs),
        "compile time, assumed": "-" if seconds is None else f"{seconds / 60:.0f} min",
        "memory of a core": f"{memory.total / 2**30:.2f} GiB, {memory.verdict.value}" if memory else "-",
    }
