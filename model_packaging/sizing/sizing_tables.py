"""What `neuron-endpoint size` prints: rates, instances and tuned buckets, as tables or as JSON."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import click

from handler.config.config_rows import to_document
from model_packaging.console.output import print_json
from model_packaging.console.tables import json_text, plain_table, show
from model_packaging.sizing.instance_options import InstanceOption
from model_packaging.sizing.plan_cost import PlanCost
from model_packaging.sizing.prediction import RESERVED, PlanPrediction
from model_packaging.sizing.request_log import RequestLengths
from model_packaging.sizing.tuned_plan import Tuning

NOTE = "Predicted from a roofline, not measured. How good it is: docs/predictions.md."
RESERVED_NOTE = "Costs are at EC2's rates of reserved instances, not at SageMaker's: give those with --price."


def print_predictions(predictions: Sequence[PlanPrediction], title: str, as_json: bool) -> None:
    """Prints the rates on one instance, for each batch."""
    if as_json:
        print_json({"predictions": [prediction.document() for prediction in predictions]})
        return
    titles = ("batch", "TP", "first token", "a token", "tokens/s", "a million tokens", "memory")
    rows = [
        (
            str(prediction.load.batch),
            str(prediction.degree),
            *rate_cells(prediction),
            "no price" if prediction.cost is None else f"{prediction.cost:.2f}",
            prediction.sized.memory.verdict.value if prediction.sized.memory else "-",
        )
        for prediction in predictions
    ]
    show(plain_table(titles, rows, title), *_notes(predictions))


def rate_cells(prediction: PlanPrediction) -> tuple[str, str, str]:
    """The time to the first token, the time of each further one, and the rate."""
    rates = prediction.rates
    first, between = f"{rates.first_token * 1000:.0f} ms", f"{rates.between_tokens * 1000:.1f} ms"
    return first, between, f"{rates.tokens_per_second:,.0f}"


def print_options(options: Sequence[InstanceOption], as_json: bool) -> None:
    """Prints the instances that fit a load, and why others do not."""
    if as_json:
        print_json({"options": [option.document() for option in options]})
        return
    rows = [
        (
            option.instance.name,
            "no price" if option.cost_hour is None else f"{option.cost_hour:,.2f}",
            f"{option.instances:,}",
            str(option.prediction.degree),
            str(option.prediction.load.batch),
            *rate_cells(option.prediction),
        )
        for option in options
        if option.prediction
    ]
    titles = ("instance", "cost an hour", "instances", "TP", "batch", "first token", "a token", "tokens/s of one")
    unfit = [(option.instance.name, option.why) for option in options if option.why]
    predictions = [option.prediction for option in options if option.prediction]
    show(
        plain_table(titles, rows),
        *([plain_table(("does not fit", "why"), unfit)] if unfit else []),
        *_notes(predictions),
    )


def _notes(predictions: Sequence[PlanPrediction]) -> list[str]:
    reserved = any(prediction.price_source == RESERVED for prediction in predictions)
    instances: dict[tuple[str, str], dict[str, None]] = {}
    for prediction in predictions:
        for warning in prediction.sized.warnings:
            name = prediction.sized.instance.name if prediction.sized.instance else ""
            instances.setdefault((warning.why, warning.fix), {})[name] = None
    warnings = [f"Warning ({', '.join(names)}): {why}. {fix}" for (why, fix), names in instances.items()]
    return [NOTE, *([RESERVED_NOTE] if reserved else []), *warnings]


def print_tuning(tuning: Tuning, lengths: RequestLengths, output: str | None, as_json: bool) -> None:
    """Prints the buckets of today and those proposed; writes the settings to `output`, if it is given."""

    text = to_document(tuning.config)
    if output:
        Path(output).write_text(text, encoding="utf-8")
    if as_json:
        requests = {"requests": lengths.requests, "ignored": lengths.ignored, "too_long": lengths.too_long}
        print_json({**requests, **tuning.document(), "document": text})
        return
    today, proposed = _cost_column(tuning.today), _cost_column(tuning.proposed)
    show(
        f"{lengths.requests:,} requests on {tuning.proposed.sized.plan.line}. {lengths.too_long:,} were too long for "
        f"it, and {lengths.ignored:,} lines had no lengths.",
        plain_table(("", "today", "proposed"), [(name, today[name], proposed[name]) for name in today]),
        "Padding saved: " + ", ".join(f"{share:.0%} in {phase}" for phase, share in tuning.saved().items()) + ".",
    )
    if tuning.changed:
        changes = [(name, json_text(old), json_text(new)) for name, (old, new) in tuning.changed.items()]
        show(plain_table(("changed", "today", "proposed"), changes))
    if not output:
        click.echo(text, nl=False)


def _cost_column(cost: PlanCost) -> dict[str, str]:
    column = {
        "prefill segment" if cost.buckets.segmented else "prefill buckets": " ".join(map(str, cost.buckets.prefill)),
        "decode buckets": " ".join(map(str, cost.buckets.decode)),
        "batch buckets": " ".join(map(str, cost.buckets.batches)),
    }
    for tokens in (cost.prefill, cost.decode):
        column[f"{tokens.phase}: tokens asked"] = f"{tokens.asked:,}"
        column[f"{tokens.phase}: computed"] = f"{tokens.computed:,}"
        column[f"{tokens.phase}: padding"] = f"{tokens.padding / tokens.computed:.1%}" if tokens.computed else "-"
    memory, seconds = cost.sized.memory, cost.compile_seconds
    return {
        **column,
        "sequences computed for each that ran": "-" if cost.batch is None else f"{cost.batch:.2f}",
        "graphs": str(cost.buckets.graphs),
        "compile time, assumed": "-" if seconds is None else f"{seconds / 60:.0f} min",
        "memory of a core": f"{memory.total / 2**30:.2f} GiB, {memory.verdict.value}" if memory else "-",
    }
