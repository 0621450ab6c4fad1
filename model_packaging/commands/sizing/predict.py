"""`neuron-endpoint predict`."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from dataclasses import replace
from typing import TYPE_CHECKING

import click

from model_packaging.console.options import json_option, plan_options, settings_options
from model_packaging.console.output import print_json

if TYPE_CHECKING:
    from handler.config.endpoint_config import EndpointConfig
    from handler.neuron.checkpoint.model_facts import ModelFacts
    from model_packaging.prediction.cheapest import InstanceOption
    from model_packaging.prediction.plan_prediction import PlanPrediction

NOTE = "Predicted from a roofline, not measured. How good it is: docs/predictions.md."


@click.command("predict")
@settings_options
@plan_options
@click.option("--input-tokens", "prompt", default=1024, show_default=True, help="Of a prompt.")
@click.option("--output-tokens", "output", default=256, show_default=True, help="Of an answer.")
@click.option("--batch", "batches", default="1,8,32", show_default=True, help="Requests at a time, by commas.")
@click.option("--tp", "degree", type=click.IntRange(min=1), help="The tensor-parallel degree; default: the plan's.")
@click.option(
    "--price", "prices", multiple=True, metavar="INSTANCE=PRICE", help="Of an hour, for example trn2.48xlarge=40."
)
@click.option("--cheapest", is_flag=True, help="Compare all instances for --requests within --ttft and --tpot.")
@click.option("--requests", type=float, help="A second, for --cheapest.")
@click.option("--ttft", type=float, default=float("inf"), help="At most so many seconds to the first token.")
@click.option("--tpot", type=float, default=float("inf"), help="At most so many seconds a token.")
@click.option("--use", default=0.7, show_default=True, help="The share of an instance's rate that --cheapest uses.")
@json_option
@click.argument("model", required=False)
def command(
    environ: Mapping[str, str],
    line: str | None,
    instance: str | None,
    prompt: int,
    output: int,
    batches: str,
    degree: int | None,
    prices: tuple[str, ...],
    cheapest: bool,
    requests: float | None,
    ttft: float,
    tpot: float,
    use: float,
    as_json: bool,
    model: str | None,
) -> None:
    """Predicts time to the first token, time per token, tokens a second and cost, from a roofline.

    MODEL is a directory or s3://bucket/prefix with config.json; default: the settings' own. With --cheapest, compares
    all instances for a load and a latency limit, and tells why an instance does not fit.
    """
    from handler.config.loading.config_loader import load
    from handler.neuron.hardware.instance_catalogue import find
    from model_packaging.prediction.generation import GenerationLoad
    from model_packaging.prediction.plan_prediction import predict

    config = replace(load(environ, model=model), **({"line": line} if line else {}))  # type: ignore[arg-type]
    facts, priced = _facts(config), _prices(prices)
    if cheapest:
        if not requests or requests <= 0:
            raise click.UsageError("--cheapest needs --requests: how many a second.")
        _print_options(_options(config, facts, requests, prompt, output, ttft, tpot, use, priced), as_json)
        return
    name = instance or config.instance
    if not name:
        raise click.UsageError("Give --instance, or --cheapest.")
    machine = find(name, "--instance", hosting=False)
    found = [
        predict(
            config,
            facts,
            machine,
            GenerationLoad(batch=batch, prompt=prompt, output=output),
            degree=degree,
            price=priced.get(machine.name),
        )
        for batch in _numbers(batches)
    ]
    _print_predictions(found, as_json)


def _facts(config: EndpointConfig) -> ModelFacts:
    from handler.errors import SettingError
    from handler.neuron.checkpoint.checkpoint_reader import read_facts

    facts = read_facts(config.model)
    if facts is None:
        fix = "Give a directory or s3:// prefix with its config.json; the weights are not read."
        raise SettingError("MODEL", f"{config.model} is not on this machine", fix)
    return facts


def _numbers(text: str) -> list[int]:
    try:
        return [int(part) for part in text.split(",")]
    except ValueError:
        raise click.BadParameter(f"{text!r} is no list of numbers.", param_hint="--batch") from None


def _prices(given: tuple[str, ...]) -> dict[str, float]:
    prices = {}
    for text in given:
        name, _, price = text.partition("=")
        try:
            prices[name.removeprefix("ml.")] = float(price)
        except ValueError:
            raise click.BadParameter(f"{text!r} is not INSTANCE=PRICE.", param_hint="--price") from None
    return prices


def _options(
    config: EndpointConfig,
    facts: ModelFacts,
    requests: float,
    prompt: int,
    output: int,
    ttft: float,
    tpot: float,
    use: float,
    prices: Mapping[str, float],
) -> list[InstanceOption]:
    from model_packaging.prediction.cheapest import ServiceDemand, instance_options

    limits = {"ttft": ttft, "tpot": tpot, "use": use}
    demand = ServiceDemand(requests=requests, prompt=prompt, output=output, prices=prices, **limits)
    return instance_options(config, facts, demand)


def _print_predictions(found: list[PlanPrediction], as_json: bool) -> None:
    if as_json:
        print_json({"predictions": [one.document() for one in found]})
        return
    from model_packaging.console.tables import plain_table, show

    titles = ("batch", "TP", "first token", "a token", "tokens/s", "a million tokens", "memory")
    rows = [
        (
            str(one.load.batch),
            str(one.degree),
            f"{one.rates.first_token * 1000:.0f} ms",
            f"{one.rates.between_tokens * 1000:.1f} ms",
            f"{one.rates.tokens_per_second:,.0f}",
            "no price" if one.cost is None else f"{one.cost:.2f}",
            one.memory.verdict.value if one.memory else "-",
        )
        for one in found
    ]
    load = found[0].load
    title = f"{found[0].instance.name}, {load.prompt} tokens in, {load.output} out"
    show(plain_table(titles, rows, title), NOTE)


def _print_options(options: list[InstanceOption], as_json: bool) -> None:
    if as_json:
        print_json({"options": [option.document() for option in options]})
    else:
        from model_packaging.console.tables import plain_table, show

        fit = [(option, option.prediction) for option in options if option.prediction]
        rows = [
            (
                option.instance.name,
                "no price" if option.cost_hour is None else f"{option.cost_hour:,.2f}",
                f"{option.instances:,}",
                str(one.degree),
                str(one.load.batch),
                f"{one.rates.first_token * 1000:.0f} ms",
                f"{one.rates.between_tokens * 1000:.1f} ms",
                f"{one.rates.tokens_per_second:,.0f}",
            )
            for option, one in fit
        ]
        titles = ("instance", "cost an hour", "instances", "TP", "batch", "first token", "a token", "tokens/s of one")
        show(plain_table(titles, rows))
        refused = [(option.instance.name, option.why) for option in options if option.why]
        if refused:
            show(plain_table(("does not fit", "why"), refused))
        show(NOTE)
    sys.exit(0 if any(option.prediction for option in options) else 1)
