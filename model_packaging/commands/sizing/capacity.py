"""`neuron-endpoint capacity`."""

from __future__ import annotations

from dataclasses import replace
from math import inf
from typing import TYPE_CHECKING

import click

from model_packaging.console.options import json_option
from model_packaging.console.output import print_json, size_text

if TYPE_CHECKING:
    from model_packaging.capacity.measured import MeasuredServer


@click.command("capacity")
@click.option("--requests", required=True, type=float, help="A second.")
@click.option("--output-tokens", "tokens", default=200, show_default=True, help="Of an answer, on average.")
@click.option("--like", default="sample", show_default=True, help="Rates to begin with: sample, or llama-3.3-70b.")
@click.option("--model", help="Predict the rates of this model (a directory or s3:// prefix) on --instance.")
@click.option("--instance", help="The instance of --model, for example ml.inf2.48xlarge.")
@click.option("--input-tokens", "prompt", default=1024, show_default=True, help="Of a prompt of --model.")
@click.option("--tokens-per-second", "rate", type=float, help="Of one instance, as `neuron-endpoint bench` says.")
@click.option("--in-flight", type=int, help="Requests at a time with which that was measured.")
@click.option("--weights-gb", type=float, help="What a start reads from S3, in GB, graphs included.")
@click.option("--use", default=0.7, show_default=True, help="The share of that rate to be used.")
@click.option("--price", default=1.0, show_default=True, help="Of an instance for an hour.")
@click.option("--instance-quota", type=int, help="The account's, by Service Quotas.")
@click.option("--invoke-quota", type=float, help="InvokeEndpoint calls a second, by Service Quotas.")
@json_option
def command(
    requests: float,
    tokens: int,
    like: str,
    model: str | None,
    instance: str | None,
    prompt: int,
    rate: float | None,
    in_flight: int | None,
    weights_gb: float | None,
    use: float,
    price: float,
    instance_quota: int | None,
    invoke_quota: float | None,
    as_json: bool,
) -> None:
    """Computes instances, cost and S3 reads of a load, and which limit is reached first.

    The rates of `--like` are those of docs/scale.md, and those of `--model` are predicted (docs/predictions.md). No
    Neuron hardware was measured for them: give your own rates.
    """
    from model_packaging.capacity.fleet_size import Demand, fleet_for
    from model_packaging.capacity.limit_usage import CapacityQuotas, strains
    from model_packaging.capacity.measured import SERVERS
    from model_packaging.capacity.page import number

    if like not in SERVERS:
        raise click.BadParameter(f"it is none of {', '.join(SERVERS)}.", param_hint="--like")
    server = SERVERS[like]
    if model:
        if not instance:
            raise click.UsageError("--model needs --instance.")
        server = _predicted(model, instance, prompt, tokens, in_flight)
    given = {
        "tokens_per_second": rate,
        "in_flight": in_flight,
        "weights": None if weights_gb is None else round(weights_gb * 1e9),
    }
    own = {name: value for name, value in given.items() if value is not None}
    if own and not (model and own.keys() == {"in_flight"}):
        server = replace(server, **own, name="your instance", source="as given")  # type: ignore[arg-type]
    fleet = fleet_for(Demand(requests=requests, tokens=tokens, use=use, price=price), server)
    met = strains(fleet, CapacityQuotas(instance_quota, invoke_quota))
    if as_json:
        print_json({**fleet.document(), "strains": [strain.document(fleet) for strain in met]})
        return
    from model_packaging.console.tables import plain_table, show

    rows = [
        (
            strain.what,
            number(strain.needed),
            f"{number(strain.limit) if strain.limit else 'your quota of'} {strain.unit}",
            "-" if strain.requests(fleet) == inf else number(strain.requests(fleet)),
        )
        for strain in met
    ]
    show(
        f"{server.name} ({server.source}): {number(server.tokens_per_second)} tokens/s, of which {use:.0%} are used.",
        f"{fleet.instances:,} instances for {number(fleet.tokens)} tokens/s; {number(fleet.cost_hour)} an hour, "
        f"{number(fleet.cost_million)} for a million tokens.",
        f"A start of all reads {size_text(fleet.read_bytes)} in {fleet.reads:,} requests; one instance takes up to "
        f"{number(fleet.start)} s.",
        plain_table(("what", "needs", "of", "met at requests/s"), rows),
        f"Met first of those that are known: {first.what}. Then: {first.then}." if (first := met[0]).limit else "",
    )


def _predicted(model: str, instance: str, prompt: int, tokens: int, in_flight: int | None) -> MeasuredServer:
    from handler.config.loading.config_loader import load
    from handler.errors import SettingError
    from handler.neuron.checkpoint.checkpoint_reader import read_facts
    from handler.neuron.hardware.instance_catalogue import find
    from model_packaging.capacity.measured import MeasuredServer
    from model_packaging.prediction.generation import GenerationLoad
    from model_packaging.prediction.plan_prediction import predict

    facts = read_facts(model)
    if facts is None:
        raise SettingError("--model", f"{model} is not on this machine", "Give a directory or s3:// prefix.")
    found = find(instance, "--instance", hosting=False)
    load_of_one = GenerationLoad(batch=in_flight or 32, prompt=prompt, output=tokens)
    prediction = predict(load({}, model=model), facts, found, load_of_one)
    return MeasuredServer(
        name=f"{model} on {found.name}",
        tokens_per_second=prediction.rates.tokens_per_second,
        in_flight=load_of_one.batch,
        weights=facts.weight_bytes or 0,
        source="predicted, docs/predictions.md",
    )
