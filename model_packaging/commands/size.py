"""`neuron-endpoint size`."""

from __future__ import annotations

import re
import sys
from collections.abc import Mapping, Sequence
from dataclasses import replace
from math import inf
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from model_packaging.console.options import AMOUNT, COUNT, json_option, plan_options, settings_options

if TYPE_CHECKING:
    from handler.config.endpoint_config import EndpointConfig
    from handler.neuron.checkpoint.model_facts import ModelFacts
    from handler.neuron.hardware.instance_catalogue import InstanceType

PREDICTED_BATCHES = (1, 8, 32)
# Options that have a meaning only beside one of these other ones.
NEEDED = {
    "ttft": ("requests", "log"),
    "tpot": ("requests",),
    **dict.fromkeys(("graphs", "output", "plot"), ("log",)),
}


@click.command("size")
@settings_options
@plan_options
@click.option("--input-tokens", default=1024, show_default=True, help="Assume so many tokens in a prompt, on average.")
@click.option("--output-tokens", default=256, show_default=True, help="Assume so many tokens in an answer, on average.")
@click.option("--batch", help="Predict for so many requests at a time. Default: 1,8,32; with --requests the best.")
@click.option("--tp", type=COUNT, help="Predict for this tensor-parallel degree. Default: the plan's.")
@click.option(
    "--price",
    "prices",
    multiple=True,
    metavar="[INSTANCE=]PRICE",
    help="Set hourly prices in place of EC2's reserved rates.",
)
@click.option("--requests", type=AMOUNT, help="Compare instances for so many requests per second.")
@click.option("--ttft", type=AMOUNT, help="Allow so many seconds to the first token.")
@click.option("--tpot", type=AMOUNT, help="Allow so many seconds per output token.")
@click.option("--use", default=0.7, show_default=True, type=AMOUNT, help="Use this share of an instance's rate.")
@click.option("--log", help="Read this request log: a file, -, trace:chat, trace:code or trace:summarization.")
@click.option("--graphs", type=click.IntRange(min=2), help="Compile so many graphs at most. Default: as many as today.")
@click.option("--output", type=click.Path(dir_okay=False), help="Write the tuned settings to this file.")
@click.option("--plot", type=click.Path(dir_okay=False, path_type=Path), help="Draw the padding: .svg, .png or .pdf.")
@json_option
@click.argument("model", required=False)
def command(
    environ: Mapping[str, str], line: str | None, instance: str | None, as_json: bool, model: str | None, **options: Any
) -> None:
    """Predicts rates and cost on an instance, finds instances for a load, or chooses buckets for a request log.

    With --instance: time to the first token, time per token, tokens per second, and cost.

    With --requests: the instances that serve the load, the cheapest first; with --instance, only this one.

    With --log: buckets, batches, sequences and segments for its lengths, what they save, and the settings to deploy.
    The counts are exact for requests that run one at a time.

    Without --price, costs are at EC2's rates of reserved instances, which SageMaker does not bill.

    MODEL is a directory or s3://bucket/prefix with config.json; with --log also a hub id. Default: the settings' own.
    """
    from handler.config.loading.config_loader import load

    for name, others in NEEDED.items():
        if options[name] is not None and all(options[other] is None for other in others):
            needed = " or ".join(map(_option, others))
            raise click.UsageError(f"{_option(name)} needs {needed}.")
    if options["log"] and options["requests"] is not None:
        raise click.UsageError("Give --log or --requests.")
    config = load(environ, model=model)
    config = replace(config, line=line or config.line, instance=instance or config.instance)
    if options["log"]:
        _tune(config, options, as_json)
    elif options["requests"] is not None:
        _find_instances(config, instance, options, as_json)
    else:
        _predict(config, options, as_json)


def _option(name: str) -> str:
    return f"--{name.replace('_', '-')}"


def _predict(config: EndpointConfig, options: Mapping[str, Any], as_json: bool) -> None:
    """Prints the rates on one instance, for each batch."""
    from model_packaging.sizing import sizing_tables
    from model_packaging.sizing.instance_options import predict_load
    from model_packaging.sizing.prediction import GenerationLoad

    instance = _instance(config.instance)
    if instance is None:
        raise click.UsageError("Give --instance, --requests or --log.")
    facts, prices = _facts(config), _prices(options["prices"], instance)
    prompt, output = options["input_tokens"], options["output_tokens"]
    loads = [
        GenerationLoad(batch=batch, prompt=prompt, output=output)
        for batch in _batches(options["batch"]) or PREDICTED_BATCHES
    ]
    predictions = [predict_load(config, facts, instance, load, degree=options["tp"], prices=prices) for load in loads]
    sizing_tables.print_predictions(predictions, f"{instance.name}, {prompt} tokens in, {output} out", as_json)


def _find_instances(config: EndpointConfig, name: str | None, options: Mapping[str, Any], as_json: bool) -> None:
    """Compares the instances for a load.

    :param name: the value of --instance. The instance of the settings does not keep the others out.
    """
    from model_packaging.sizing import sizing_tables
    from model_packaging.sizing.instance_options import BATCHES, Demand, instance_options

    demand = Demand(
        requests=options["requests"],
        prompt=options["input_tokens"],
        output=options["output_tokens"],
        ttft=inf if options["ttft"] is None else options["ttft"],
        tpot=inf if options["tpot"] is None else options["tpot"],
        use=options["use"],
    )
    instance = _instance(name)
    prices, batches = _prices(options["prices"], instance), _batches(options["batch"]) or BATCHES
    if "" in prices:
        raise click.BadParameter("write INSTANCE=PRICE to compare instances.", param_hint="--price")
    found = instance_options(
        config, _facts(config), demand, prices, only=instance, degree=options["tp"], batches=batches
    )
    sizing_tables.print_options(found, as_json)
    sys.exit(0 if any(option.prediction for option in found) else 1)


def _tune(config: EndpointConfig, options: Mapping[str, Any], as_json: bool) -> None:
    """Chooses the buckets for a log, and prints them."""
    from handler.neuron.checkpoint.checkpoint_reader import read_facts
    from handler.neuron.hardware.current_machine import this_machine
    from model_packaging import plots
    from model_packaging.sizing import sizing_tables
    from model_packaging.sizing.request_log import read_log
    from model_packaging.sizing.sized_plan import make_sized_plan
    from model_packaging.sizing.tuned_plan import tune

    if options["plot"]:
        plots.check(options["plot"])
    facts, machine = read_facts(config.model), this_machine(config)
    lengths = read_log(options["log"], make_sized_plan(config, facts, machine).listed_buckets())
    tuning = tune(config, facts, machine, lengths, graphs=options["graphs"], ttft=options["ttft"])
    sizing_tables.print_tuning(tuning, lengths, options["output"], as_json)
    if options["plot"]:
        plots.padding_plot(tuning, lengths).savefig(options["plot"])


def _instance(name: str | None, option: str = "--instance") -> InstanceType | None:
    from handler.neuron.hardware.instance_catalogue import find

    return find(name, option, hosting=False) if name else None


def _facts(config: EndpointConfig) -> ModelFacts:
    from handler.errors import SettingError
    from handler.neuron.checkpoint.checkpoint_reader import read_facts

    facts = read_facts(config.model)
    if facts is None:
        fix = "Give a directory or s3:// prefix with its config.json; the weights are not read."
        raise SettingError("MODEL", f"{config.model} is not on this machine", fix)
    return facts


def _batches(text: str | None) -> list[int]:
    if text and not re.fullmatch(r"\s*\d{1,9}\s*(,\s*\d{1,9}\s*)*", text, re.ASCII):
        raise click.BadParameter(f"{text!r} is no list of numbers.", param_hint="--batch")
    return [int(part) for part in text.split(",")] if text else []


def _prices(texts: Sequence[str], instance: InstanceType | None) -> dict[str, float]:
    """Prices by EC2 name. One without a name is that of the instance, or of the name "" if there is none."""
    prices = {}
    for text in texts:
        name, _, price = text.rpartition("=")
        priced = _instance(name, "--price") if name else instance
        try:
            prices[priced.name if priced else ""] = AMOUNT(price)
        except click.BadParameter:
            raise click.BadParameter(
                f"{text!r} is not [INSTANCE=]PRICE, a finite number of at least 0.", param_hint="--price"
            ) from None
    return prices
