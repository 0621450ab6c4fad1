"""What a Neuron chip can do at best, and the share of it that inference reaches.

Sources of the rates: AWS Neuron documentation, about-neuron/arch/neuron-hardware: inf2-arch, trn1-arch, trainium2 and
inferentia2 (memory, dense bfloat16, chip-to-chip links). Sources of the prices: about-neuron/benchmarks,
inf2_instance_prices.csv and trn1_instance_prices.csv ("RI-Effective hourly rate"). AWS documents no price of Trn2.

The shares and the overheads are fitted to figures that AWS publishes, and judged by other ones: docs/predictions.md.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

GIB: Final = 1024**3


@dataclass(frozen=True, slots=True, kw_only=True)
class ChipRates:
    """One chip. Rates are in bytes and operations a second.

    :param memory: device memory.
    :param compute: dense bfloat16.
    :param link: to the next chip of the instance.
    :param weight_share, cache_share: of the memory's rate, for weights and for the key-value cache.
    :param compute_share: of the compute rate, in prefill.
    :param layer_seconds: of a layer and a step: two small collectives, and the start of its kernels.
    :param step_seconds: of a step: the host, sampling, and the way of a token.
    """

    memory: float
    compute: float
    link: float
    weight_share: float
    cache_share: float
    compute_share: float
    layer_seconds: float
    step_seconds: float


_V2: Final = {"memory": 820.0 * GIB, "compute": 190e12}
CHIPS: Final[Mapping[str, ChipRates]] = {
    "inf2": ChipRates(
        **_V2,
        link=192.0 * GIB,
        weight_share=0.638,
        cache_share=0.604,
        compute_share=0.14,
        layer_seconds=93.6e-6,
        step_seconds=2.6e-3,
    ),
    "trn1": ChipRates(
        **_V2,
        link=384.0 * GIB,
        weight_share=0.638,
        cache_share=0.604,
        compute_share=0.14,
        layer_seconds=93.6e-6,
        step_seconds=2.6e-3,
    ),
    "trn2": ChipRates(
        memory=2.9e12,
        compute=667e12,
        link=1.28e12,
        weight_share=0.638,
        cache_share=0.604,
        compute_share=0.279,
        layer_seconds=71.6e-6,
        step_seconds=2.6e-3,
    ),
}
# Of a request, before its prefill: HTTP, the tokenizer, vLLM's scheduler.
REQUEST_SECONDS: Final = 0.0377
# Of an hour of a reserved instance of EC2, in dollars. SageMaker bills other rates.
PRICES: Final[Mapping[str, float]] = {
    "inf2.xlarge": 0.328,
    "inf2.8xlarge": 0.850,
    "inf2.24xlarge": 2.804,
    "inf2.48xlarge": 5.608,
    "trn1.2xlarge": 0.512,
    "trn1.32xlarge": 8.197,
}
