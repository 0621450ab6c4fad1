"""The rates from which capacity is computed, with their sources. This project has not measured Neuron hardware.

Tests compare the figures with the documents that they are from.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from handler.artifacts.lease.acquisition import AcquisitionOptions
from handler.errors import SettingError
from handler.storage.s3_download import PART
from model_packaging.deployment.definition.limits import DISK_RATE

# CPU seconds of the serving process for 1,000 streamed tokens (benchmarks/README.md, "Measured", 32 streams).
FRONT_END: Final = 0.030
# Requests a second for each prefix of a bucket (Amazon S3 user guide, "Best practices design patterns").
S3_READS: Final = 5500
# An instance that fetches its model: bytes per second, and bytes per request.
RESTORE_RATE: Final = DISK_RATE
READ_SIZE: Final = PART
# S3 requests of an instance that waits for the compile of another one, without polls and files: 4 for manifests, 1 for
# failures. Counted in the simulation of a fleet's start, `make bench-fleet`.
LOOKS: Final = 5
POLL: Final = AcquisitionOptions().poll


@dataclass(frozen=True, slots=True, kw_only=True)
class MeasuredServer:
    """The measured rates of one instance.

    :param tokens_per_second: generated tokens per second with `in_flight` concurrent requests.
    :param weights: bytes that a start reads from S3, with compiled graphs.
    :param source: where the figures are from.
    """

    name: str
    tokens_per_second: float
    in_flight: int
    weights: int
    source: str

    def __post_init__(self) -> None:
        if not 0 < self.tokens_per_second < 1e9:
            problem = f"{self.tokens_per_second:g} is no rate of an instance"
            raise SettingError("--tokens-per-second", problem, "Measure it: `neuron-endpoint bench`.")
        if self.in_flight < 1:
            raise SettingError("--in-flight", "it must be 1 or more", "Give max_num_seqs.")
        if not 0 <= self.weights < 1e15:
            raise SettingError("--weights-gb", "it is no size", "Give what `neuron-endpoint inspect` says.")


SAMPLE: Final = MeasuredServer(
    name="sample model, CPU engine, 2 cores",
    tokens_per_second=6521,
    in_flight=32,
    weights=6_038_096,
    source="benchmarks/README.md, `stream_tps_c32`, measured by this project",
)
LLAMA_70B: Final = MeasuredServer(
    name="Llama 3.3 70B, trn2.48xlarge, one sequence",
    tokens_per_second=50,
    in_flight=1,
    weights=141_107_412_992,
    source="recipes/llama-3.3-70b-trn2.48xlarge.yaml: 20 ms a token, published by AWS Neuron, not measured here",
)
SERVERS: Final = {"sample": SAMPLE, "llama-3.3-70b": LLAMA_70B}
