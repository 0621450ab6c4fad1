"""What `check` says that a plan should reach: alone, and with all of its sequences."""

from __future__ import annotations

from typing import Final

from handler.neuron.hardware.chip_rates import PRICES
from handler.neuron.planning.examination import Examination
from model_packaging.prediction.generation import GenerationLoad
from model_packaging.prediction.plan_prediction import PlanPrediction, plan_prediction

# Tokens of a prompt and of an answer, at most: a plan with a shorter length has three quarters of it as prompt.
PROMPT: Final = 1024
OUTPUT: Final = 256


def expected(found: Examination) -> list[PlanPrediction]:
    """Predictions for one sequence and for max_num_seqs; empty if the model or the instance is not known.

    A plan for several nodes has none: the prediction knows no network between instances.
    """
    plan, config, facts, instance = found.plan, found.config, found.facts, found.instance
    if plan is None or config is None or facts is None or instance is None:
        return []
    if (config.nodes or 1) > 1:
        return []
    length, sequences = plan.engine_args.get("max_model_len"), plan.engine_args.get("max_num_seqs")
    if not isinstance(length, int) or not isinstance(sequences, int) or length < 4:
        return []
    prompt, output = min(PROMPT, length * 3 // 4), min(OUTPUT, length // 4)
    price = PRICES.get(instance.name)
    loads = [GenerationLoad(batch=batch, prompt=prompt, output=output) for batch in dict.fromkeys((1, sequences))]
    made = [plan_prediction(config, plan, facts, instance, load, price) for load in loads]
    return [one for one in made if one is not None]


def prediction_line(one: PlanPrediction) -> str:
    """The prediction as a sentence."""
    many = f"{one.load.batch} requests at a time" if one.load.batch > 1 else "one request at a time"
    return (
        f"Predicted, not measured, for {many} ({one.load.prompt} tokens in, {one.load.output} out): first token after "
        f"{one.rates.first_token * 1000:.0f} ms, {one.rates.between_tokens * 1000:.1f} ms a token, "
        f"{one.rates.tokens_per_second:,.0f} tokens/s."
    )
