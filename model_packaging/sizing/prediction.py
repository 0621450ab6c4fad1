"""Predicts a load on one engine: time to the first token, time per token, tokens a second, cost."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from handler.config.endpoint_config import EndpointConfig
from handler.errors import SettingError
from handler.json_value import Json
from handler.neuron.buckets.compiled_buckets import CompiledBuckets
from handler.neuron.buckets.padding import DECODE, padded_tokens
from handler.neuron.checkpoint.model_facts import ModelFacts, number
from handler.neuron.engine_plan import EnginePlan
from handler.neuron.hardware.chip_rates import CHIPS, PRICES, REQUEST_SECONDS
from handler.neuron.hardware.instance_catalogue import InstanceType
from handler.neuron.lines.native.native_prefill import powers
from handler.neuron.lines.native.native_sampling import pools
from handler.neuron.memory.memory_shape import memory_shape
from handler.neuron.planning.examination import Examination
from model_packaging.sizing.roofline import Roofline
from model_packaging.sizing.sized_plan import SizedPlan, sized_plan

# Tokens of a prompt and of an answer that `check` predicts, at most. A shorter plan has three quarters of it as prompt.
CHECK_PROMPT, CHECK_OUTPUT = 1024, 256
# The sources of prices: PRICES, and the user.
RESERVED: Final = "EC2, reserved"
OWN: Final = "--price"


@dataclass(frozen=True, slots=True, kw_only=True)
class GenerationLoad:
    """Requests that run at the same time. Lengths are in tokens.

    :param batch: requests at a time.
    """

    batch: int
    prompt: int
    output: int

    def __post_init__(self) -> None:
        for name, value in (("--batch", self.batch), ("--input-tokens", self.prompt), ("--output-tokens", self.output)):
            if not 1 <= value <= 10**7:
                raise SettingError(name, f"{value} is out of range", "Give 1 or more.")


@dataclass(frozen=True, slots=True)
class GenerationRates:
    """The prediction. Times are in seconds.

    :param first_token: of a prompt that waits for no other one.
    :param between_tokens: of the step in the middle of the output.
    :param tokens_per_second: generated tokens of all sequences.
    :param request_seconds: of a whole request. It waits once for the prefill of each other sequence.
    """

    first_token: float
    between_tokens: float
    tokens_per_second: float
    request_seconds: float


@dataclass(frozen=True, slots=True)
class PlanPrediction:
    """What one plan reaches on one instance, with one engine.

    :param price: of the instance for an hour; None if it is not known.
    :param price_source: RESERVED or OWN; None without a price.
    """

    sized: SizedPlan
    degree: int
    load: GenerationLoad
    rates: GenerationRates
    price: float | None
    price_source: str | None

    @property
    def cost(self) -> float | None:
        """The price of a million generated tokens, if the instance is never idle."""
        return None if self.price is None else self.price / 3600 / self.rates.tokens_per_second * 1e6

    def document(self) -> dict[str, Json]:
        instance, memory = self.sized.instance, self.sized.memory
        return {
            "instance": instance.name if instance else None,
            "tensor_parallel_size": self.degree,
            "batch": self.load.batch,
            "input_tokens": self.load.prompt,
            "output_tokens": self.load.output,
            "first_token_seconds": round(self.rates.first_token, 5),
            "between_tokens_seconds": round(self.rates.between_tokens, 6),
            "tokens_per_second": round(self.rates.tokens_per_second, 2),
            "request_seconds": round(self.rates.request_seconds, 3),
            "memory": memory.verdict.value if memory else None,
            "price_per_hour": self.price,
            "price_source": self.price_source,
            "cost_per_million_tokens": None if self.cost is None else round(self.cost, 4),
            "warnings": [{**warning.document()} for warning in self.sized.warnings],
        }

    def sentence(self) -> str:
        many = f"{self.load.batch} requests at a time" if self.load.batch > 1 else "one request at a time"
        return (
            f"Predicted, not measured, for {many} ({self.load.prompt} tokens in, {self.load.output} out): first token "
            f"after {self.rates.first_token * 1000:.0f} ms, {self.rates.between_tokens * 1000:.1f} ms a token, "
            f"{self.rates.tokens_per_second:,.0f} tokens/s."
        )


def predict(sized: SizedPlan, load: GenerationLoad, prices: Mapping[str, float] = {}) -> PlanPrediction | None:
    """Predicts a plan as it is; None if it has no roofline. A plan without lists of buckets counts with powers of two.

    :param prices: of an instance-hour by EC2 name, all of one kind; empty: PRICES.
    """
    if sized.roofline is None or sized.facts is None or sized.instance is None:
        return None
    shape = memory_shape(sized.config, sized.facts, sized.instance)
    buckets = sized.buckets or power_buckets(shape.length, shape.sequences)
    rates = generation_rates(sized.roofline, buckets, load)
    price = (prices or PRICES).get(sized.instance.name)
    source = None if price is None else OWN if prices else RESERVED
    return PlanPrediction(sized, shape.degree, load, rates, price, source)


def unpredicted(
    config: EndpointConfig, plan: EnginePlan, facts: ModelFacts, instance: InstanceType
) -> SettingError | None:
    """Why nothing is predicted of a plan: the roofline knows one engine that generates tokens, on one instance."""
    if pools(plan.engine_args):
        return SettingError("runner", "the model makes embeddings, and generates no tokens", "Measure it with `bench`.")
    if (config.nodes or 1) > 1:
        return SettingError("nodes", "the network between instances is not known", "Remove it to predict one instance.")
    if number(plan.engine_args, "data_parallel_size") > 1:
        fix = "Remove it. The engines of one instance reach the predicted rate each."
        return SettingError("data_parallel_size", "one engine is predicted, not several", fix)
    if memory_shape(config, facts, instance).stages > 1:
        return SettingError("pp_degree", "the rate of pipeline stages is not known", "Remove it to predict one stage.")
    if instance.platform not in CHIPS:
        fix = f"Use an instance of {', '.join(CHIPS)}."
        return SettingError("--instance", f"the rates of {instance.platform} are not known", fix)
    return None


def examined_predictions(examination: Examination) -> list[PlanPrediction]:
    """The predictions that `check` prints: for one sequence and for max_num_seqs.

    Empty if the model or the instance is not known, or if nothing is predicted of the plan.
    """
    plan, config, instance = examination.plan, examination.config, examination.instance
    if plan is None or config is None or examination.facts is None or instance is None:
        return []
    if unpredicted(config, plan, examination.facts, instance):
        return []
    length, sequences = plan.engine_args.get("max_model_len"), plan.engine_args.get("max_num_seqs")
    if not isinstance(length, int) or not isinstance(sequences, int) or length < 4:
        return []
    sized = sized_plan(config, plan, examination.facts, instance)
    prompt, output = min(CHECK_PROMPT, length * 3 // 4), min(CHECK_OUTPUT, length // 4)
    loads = [GenerationLoad(batch=batch, prompt=prompt, output=output) for batch in dict.fromkeys((1, sequences))]
    return [prediction for load in loads if (prediction := predict(sized, load))]


def generation_rates(roofline: Roofline, buckets: CompiledBuckets, load: GenerationLoad) -> GenerationRates:
    """Predicts a steady load: whenever a request ends, the next one is prefilled while the others wait.

    :param buckets: what prompts, contexts and batches are padded to.
    """
    batch = buckets.batch(load.batch)
    prefill = prefill_seconds(roofline, buckets, load.prompt)
    middle = buckets.decode_tokens(load.prompt + max(load.output // 2, 1))
    decode = sum(
        tokens.computed // tokens.bucket * roofline.decode(batch, tokens.bucket)
        for tokens in padded_tokens(buckets, load.prompt, load.output)
        if tokens.phase == DECODE
    )
    seconds = REQUEST_SECONDS + load.batch * prefill + decode
    return GenerationRates(
        first_token=REQUEST_SECONDS + prefill,
        between_tokens=roofline.decode(batch, middle),
        tokens_per_second=load.batch * load.output / seconds,
        request_seconds=seconds,
    )


def prefill_seconds(roofline: Roofline, buckets: CompiledBuckets, prompt: int) -> float:
    """The prefill of one prompt: one bucket, or its segments one after the other."""
    computed = buckets.prefill_tokens(prompt)
    if not buckets.segmented:
        return roofline.prefill(computed)
    size = buckets.prefill[0]
    return sum(roofline.prefill(size, context=before) for before in range(0, computed, size))


def power_buckets(length: int, batch: int, prefill: Sequence[int] = (), decode: Sequence[int] = ()) -> CompiledBuckets:
    """The usual buckets: powers of two up to the length, and one batch. Each list that is given replaces its own."""
    usual = powers(128, length)
    return CompiledBuckets(tuple(prefill) or usual, tuple(decode) or usual, (batch,))
