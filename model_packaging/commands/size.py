"""`neuron-endpoint size`."""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from dataclasses import replace
from math import inf
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from model_packaging.console.options import json_option, plan_options, settings_options
from model_packaging.console.output import number_text, print_json, size_text

if TYPE_CHECKING:
    from handler.config.endpoint_config import EndpointConfig
    from handler.neuron.checkpoint.model_facts import ModelFacts
    from handler.neuron.hardware.instance_type import InstanceType
    from model_packaging.sizing.fleet import Demand, Fleet, InstanceRates
    from model_packaging.sizing.fleet_limits import LimitUse
    from model_packaging.sizing.instance_options import InstanceOption
    from model_packaging.sizing.plan_cost import PlanCost
    from model_packaging.sizing.prediction import PlanPrediction
    from model_packaging.sizing.request_log import RequestLengths
    from model_packaging.sizing.tuned_plan import Tuning

NOTE = "Predicted from a roofline, not measured. How good it is: docs/predictions.md."
PREDICTED_BATCHES, MEASURED_BATCH = (1, 8, 32), 32
# Options that have a meaning only beside one of these other ones.
NEEDED = {
    "ttft": ("requests", "log"),
    **dict.fromkeys(("tpot", "tokens_per_second", "weights_gb", "instance_quota", "invoke_quota"), ("requests",)),
    "in_flight": ("tokens_per_second",),
    **dict.fromkeys(("graphs", "output", "plot", "watch"), ("log",)),
    "polls": ("watch",),
}


@click.command("size")
@settings_options
@plan_options
@click.option("--input-tokens", default=1024, show_default=True, help="Mean tokens of a prompt.")
@click.option("--output-tokens", default=256, show_default=True, help="Mean tokens of an answer.")
@click.option("--batch", help="Requests at a time, comma-separated. Default: 1,8,32; the best of a fleet.")
@click.option("--tp", type=click.IntRange(min=1), help="Tensor-parallel degree. Default: the plan's.")
@click.option("--price", "prices", multiple=True, metavar="[INSTANCE=]PRICE", help="Price of an hour (repeatable).")
@click.option("--requests", type=float, help="Requests per second of a fleet.")
@click.option("--ttft", type=float, help="Maximum seconds to the first token.")
@click.option("--tpot", type=float, help="Maximum seconds per output token.")
@click.option("--use", default=0.7, show_default=True, help="Share of an instance's rate that a fleet uses.")
@click.option("--tokens-per-second", type=float, help="Measured rate of one instance (`neuron-endpoint bench`).")
@click.option("--in-flight", type=int, help=f"Concurrent requests of the measured rate. Default: {MEASURED_BATCH}.")
@click.option("--weights-gb", type=float, help="GB that a start reads from S3, graphs included.")
@click.option("--instance-quota", type=int, help="Account quota of instances (Service Quotas).")
@click.option("--invoke-quota", type=float, help="Account quota of InvokeEndpoint calls per second (Service Quotas).")
@click.option("--log", help="Request log: a file, -, trace:chat, trace:code or trace:summarization.")
@click.option("--graphs", type=click.IntRange(min=2), help="Maximum graphs to compile. Default: as many as today.")
@click.option("--output", type=click.Path(dir_okay=False), help="File for the tuned settings.")
@click.option("--plot", type=click.Path(dir_okay=False, path_type=Path), help="Plot file: .svg, .png or .pdf.")
@click.option("--watch", metavar="URL", help="Address of a container whose /metrics are watched for other lengths.")
@click.option("--poll", type=click.FloatRange(min=0.1), default=60.0, show_default=True, help="Seconds between polls.")
@click.option("--polls", type=click.IntRange(min=1), help="Number of polls. Default: until traffic has moved.")
@json_option
@click.argument("model", required=False)
def command(
    environ: Mapping[str, str], line: str | None, instance: str | None, as_json: bool, model: str | None, **options: Any
) -> None:
    """Predicts rates and cost on an instance, sizes a fleet, or chooses buckets for a request log.

    With --instance: time to the first token, time per token, tokens per second, and cost.

    With --requests: compares all instances. With --instance or --tokens-per-second, too: instances, cost, S3 reads, and
    which limit is reached first.

    With --log: buckets, batches, sequences and segments for its lengths, what they save, and the settings to deploy.
    The counts are exact for requests that run one at a time.

    MODEL is a directory or s3://bucket/prefix with config.json; with --log also a hub id. Default: the settings' own.
    """
    from handler.config.loading.config_loader import load

    for name, others in NEEDED.items():
        if options[name] is not None and all(options[other] is None for other in others):
            needed = " or ".join(map(_option, others))
            raise click.UsageError(f"{_option(name)} needs {needed}.")
    if options["log"] and options["requests"] is not None:
        raise click.UsageError("Give --log or --requests.")
    predicted = [name for name in ("ttft", "tpot", "tp", "batch") if options[name] is not None]
    if options["tokens_per_second"] is not None and predicted:
        raise click.UsageError(f"{_option(predicted[0])} is of predicted rates: leave out --tokens-per-second.")
    config = load(environ, model=model)
    config = replace(config, line=line or config.line, instance=instance or config.instance)
    if options["log"]:
        _tune(config, options, as_json)
    elif options["requests"] is not None:
        _size_fleet(config, instance, options, as_json)
    else:
        _predict(config, options, as_json)


def _option(name: str) -> str:
    return f"--{name.replace('_', '-')}"


def _predict(config: EndpointConfig, options: Mapping[str, Any], as_json: bool) -> None:
    """Prints the rates on one instance, for each batch."""
    from model_packaging.sizing.instance_options import predict_load
    from model_packaging.sizing.prediction import GenerationLoad

    instance = _instance(config.instance)
    if instance is None:
        raise click.UsageError("Give --instance, --requests or --log.")
    facts, price = _facts(config), _prices(options["prices"], instance).get(instance.name)
    prompt, output = options["input_tokens"], options["output_tokens"]
    loads = [
        GenerationLoad(batch=batch, prompt=prompt, output=output)
        for batch in _batches(options["batch"]) or PREDICTED_BATCHES
    ]
    predictions = [predict_load(config, facts, instance, load, degree=options["tp"], price=price) for load in loads]
    if as_json:
        print_json({"predictions": [prediction.document() for prediction in predictions]})
        return
    from model_packaging.console.tables import plain_table, show

    titles = ("batch", "TP", "first token", "a token", "tokens/s", "a million tokens", "memory")
    rows = [
        (
            str(one.load.batch),
            str(one.degree),
            *_rate_cells(one),
            "no price" if one.cost is None else f"{one.cost:.2f}",
            one.sized.memory.verdict.value if one.sized.memory else "-",
        )
        for one in predictions
    ]
    show(plain_table(titles, rows, f"{instance.name}, {prompt} tokens in, {output} out"), NOTE)


def _rate_cells(prediction: PlanPrediction) -> tuple[str, str, str]:
    rates = prediction.rates
    first, between = f"{rates.first_token * 1000:.0f} ms", f"{rates.between_tokens * 1000:.1f} ms"
    return first, between, f"{rates.tokens_per_second:,.0f}"


def _size_fleet(config: EndpointConfig, name: str | None, options: Mapping[str, Any], as_json: bool) -> None:
    """Compares all instances; or prints the fleet of one instance, or of a measured rate.

    :param name: the value of --instance. The instance of the settings does not keep the others out.
    """
    from model_packaging.sizing import instance_options as choice
    from model_packaging.sizing.fleet import Demand, fleet_for
    from model_packaging.sizing.fleet_limits import limit_uses

    demand = Demand(
        requests=options["requests"],
        prompt=options["input_tokens"],
        output=options["output_tokens"],
        ttft=inf if options["ttft"] is None else options["ttft"],
        tpot=inf if options["tpot"] is None else options["tpot"],
        use=options["use"],
    )
    instance = _instance(name)
    if instance is None and options["tokens_per_second"] is None:
        prices, batches = _prices(options["prices"], None), _batches(options["batch"]) or choice.BATCHES
        if "" in prices:
            raise click.BadParameter("write INSTANCE=PRICE to compare instances.", param_hint="--price")
        found = choice.instance_options(config, _facts(config), demand, prices, degree=options["tp"], batches=batches)
        _print_options(found, as_json)
        sys.exit(0 if any(option.prediction for option in found) else 1)
    fleet = fleet_for(demand, _instance_rates(config, instance, demand, options))
    _print_fleet(fleet, limit_uses(fleet, options["instance_quota"], options["invoke_quota"]), as_json)


def _instance_rates(
    config: EndpointConfig, instance: InstanceType | None, demand: Demand, options: Mapping[str, Any]
) -> InstanceRates:
    """The rates of one instance: as measured, or predicted for the best batch within the limits."""
    from handler.errors import SettingError
    from handler.neuron.hardware.chip_rates import PRICES
    from model_packaging.sizing.fleet import InstanceRates
    from model_packaging.sizing.instance_options import BATCHES, instance_option

    name = instance.name if instance else ""
    price = {**PRICES, **_prices(options["prices"], instance)}.get(name)
    weights = None if options["weights_gb"] is None else round(options["weights_gb"] * 1e9)
    if instance is None or options["tokens_per_second"] is not None:
        return InstanceRates(
            name=name or "your instance",
            tokens_per_second=options["tokens_per_second"],
            in_flight=MEASURED_BATCH if options["in_flight"] is None else options["in_flight"],
            weights=weights or 0,
            price=price,
            source="as given",
        )
    facts, batches = _facts(config), _batches(options["batch"]) or BATCHES
    option = instance_option(config, facts, instance, demand, price, (options["tp"],), batches)
    if option.prediction is None:
        raise SettingError("--instance", f"{name}: {option.why}", "Leave --instance out to compare all.")
    return InstanceRates(
        name=f"{config.model} on {name}",
        tokens_per_second=option.prediction.rates.tokens_per_second,
        in_flight=option.prediction.load.batch,
        weights=(facts.weight_bytes or 0) if weights is None else weights,
        price=price,
        source="predicted, docs/predictions.md",
    )


def _print_options(options: Sequence[InstanceOption], as_json: bool) -> None:
    if as_json:
        print_json({"options": [option.document() for option in options]})
        return
    from model_packaging.console.tables import plain_table, show

    rows = [
        (
            option.instance.name,
            "no price" if option.cost_hour is None else f"{option.cost_hour:,.2f}",
            f"{option.instances:,}",
            str(option.prediction.degree),
            str(option.prediction.load.batch),
            *_rate_cells(option.prediction),
        )
        for option in options
        if option.prediction
    ]
    titles = ("instance", "cost an hour", "instances", "TP", "batch", "first token", "a token", "tokens/s of one")
    unfit = [(option.instance.name, option.why) for option in options if option.why]
    show(plain_table(titles, rows), *([plain_table(("does not fit", "why"), unfit)] if unfit else []), NOTE)


def _print_fleet(fleet: Fleet, uses: Sequence[LimitUse], as_json: bool) -> None:
    if as_json:
        print_json({**fleet.document(), "limits": [use.document(fleet) for use in uses]})
        return
    from model_packaging.console.tables import plain_table, show

    rates, hour, million = fleet.rates, fleet.cost_hour, fleet.cost_million
    cost = "no price"
    if hour is not None and million is not None:
        cost = f"{number_text(hour)} an hour, {number_text(million)} for a million tokens"
    rows = [
        (
            use.what,
            number_text(use.needed),
            f"{number_text(use.limit) if use.limit else 'your quota of'} {use.unit}",
            "-" if use.requests(fleet) == inf else number_text(use.requests(fleet)),
        )
        for use in uses
    ]
    show(
        f"{rates.name} ({rates.source}): {number_text(rates.tokens_per_second)} tokens/s with {rates.in_flight} "
        f"requests at a time, of which {fleet.demand.use:.0%} are used.",
        f"{fleet.instances:,} instances for {number_text(fleet.tokens)} tokens/s; {cost}.",
        f"A start of all reads {size_text(fleet.read_bytes)} in {fleet.reads:,} requests; one instance takes up to "
        f"{number_text(fleet.start)} s.",
        plain_table(("what", "needs", "of", "reached at requests/s"), rows),
        f"Reached first of those that are known: {first.what}. Then: {first.then}." if (first := uses[0]).limit else "",
    )


def _tune(config: EndpointConfig, options: Mapping[str, Any], as_json: bool) -> None:
    """Chooses the buckets for a log, prints them, and watches an endpoint if asked."""
    from handler.neuron.checkpoint.checkpoint_reader import read_facts
    from handler.neuron.hardware.current_machine import this_machine
    from model_packaging import plots
    from model_packaging.sizing.request_log import read_log
    from model_packaging.sizing.sized_plan import make_sized_plan
    from model_packaging.sizing.tuned_plan import tune

    if options["plot"]:
        plots.check(options["plot"])
    facts, machine = read_facts(config.model), this_machine(config)
    lengths = read_log(options["log"], make_sized_plan(config, facts, machine).listed_buckets())
    tuning = tune(config, facts, machine, lengths, graphs=options["graphs"], ttft=options["ttft"])
    _print_tuning(tuning, lengths, options["output"], as_json)
    if options["plot"]:
        plots.padding_plot(tuning, lengths).savefig(options["plot"])
    if options["watch"]:
        from model_packaging.sizing.traffic_watch import watch_traffic

        def say(text: str) -> None:
            click.echo(text, err=as_json)

        sys.exit(1 if watch_traffic(options["watch"], tuning.proposed, options["poll"], options["polls"], say) else 0)


def _print_tuning(tuning: Tuning, lengths: RequestLengths, output: str | None, as_json: bool) -> None:
    from handler.config.config_rows import to_document

    text = to_document(tuning.config)
    if output:
        Path(output).write_text(text, encoding="utf-8")
    if as_json:
        requests = {"requests": lengths.requests, "ignored": lengths.ignored, "too_long": lengths.too_long}
        print_json({**requests, **tuning.document(), "document": text})
        return
    from model_packaging.console.tables import json_text, plain_table, show

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


def _instance(name: str | None) -> InstanceType | None:
    from handler.neuron.hardware.instance_catalogue import find

    return find(name, "--instance", hosting=False) if name else None


def _facts(config: EndpointConfig) -> ModelFacts:
    from handler.errors import SettingError
    from handler.neuron.checkpoint.checkpoint_reader import read_facts

    facts = read_facts(config.model)
    if facts is None:
        fix = "Give a directory or s3:// prefix with its config.json; the weights are not read."
        raise SettingError("MODEL", f"{config.model} is not on this machine", fix)
    return facts


def _batches(text: str | None) -> list[int]:
    try:
        return [int(part) for part in text.split(",")] if text else []
    except ValueError:
        raise click.BadParameter(f"{text!r} is no list of numbers.", param_hint="--batch") from None


def _prices(texts: Sequence[str], instance: InstanceType | None) -> dict[str, float]:
    """Prices by EC2 name. One without a name is that of the instance, or of the name "" if there is none."""
    prices = {}
    for text in texts:
        name, equals, price = text.rpartition("=")
        try:
            prices[name.removeprefix("ml.") if equals else instance.name if instance else ""] = float(price)
        except ValueError:
            raise click.BadParameter(f"{text!r} is not [INSTANCE=]PRICE.", param_hint="--price") from None
    return prices
