"""The routing strategy of an endpoint: which instance a request goes to.

botocore's model of CreateEndpointConfig has four strategies (`ProductionVariantRoutingConfig`): fewest requests in
flight, random, by prefix of the body, and KV_AWARE. The last is not supported: by its documentation it works only with
supported containers, such as SageMaker's own for vLLM, and its requirements for containers are not public.
"""

from __future__ import annotations

from dataclasses import dataclass

from handler.errors import SettingError
from handler.json_value import Json

LEAST, RANDOM, PREFIX = "least-outstanding", "random", "prefix"
STRATEGIES = {LEAST: "LEAST_OUTSTANDING_REQUESTS", RANDOM: "RANDOM", PREFIX: "PREFIX_AWARE"}
# PrefixAwareRoutingConfig, PrefixLength and ConcurrencyThreshold.
SHORTEST, LONGEST, MOST_IN_FLIGHT = 1024, 65536, 1024
# A system prompt of about 1,000 tokens, and the JSON before it.
PREFIX_BYTES = 4096
KV = "KV_AWARE needs a container that reports its cache's content, which this one does not: give prefix."


@dataclass(frozen=True, slots=True)
class Routing:
    """The routing strategy.

    :param prefix_bytes: how many bytes at the beginning of the body requests must share to go to the same instance.
    :param threshold: requests in flight above which an instance gets no more requests of its prefix. None without
        prefix.
    """

    strategy: str = LEAST
    prefix_bytes: int = PREFIX_BYTES
    threshold: int | None = None

    def __post_init__(self) -> None:
        if self.strategy not in STRATEGIES:
            problem = f"'{self.strategy[:40]}' is not a routing strategy"
            fix = f"Give {', '.join(STRATEGIES)}."
            raise SettingError("--routing", problem, KV if "kv" in self.strategy.lower() else fix)
        if self.strategy != PREFIX:
            return
        if not SHORTEST <= self.prefix_bytes <= LONGEST:
            problem = f"SageMaker compares {SHORTEST} to {LONGEST} bytes, not {self.prefix_bytes}"
            raise SettingError("--prefix-bytes", problem, "Give what a shared system prompt has, and some more.")
        if self.threshold is None or not 1 <= self.threshold <= MOST_IN_FLIGHT:
            known = "none is known" if self.threshold is None else f"not {self.threshold}"
            problem = f"an instance keeps its prefix up to 1 to {MOST_IN_FLIGHT} requests in flight, {known}"
            raise SettingError("--prefix-threshold", problem, "Give max_num_seqs: beyond it requests wait.")

    def members(self) -> dict[str, Json]:
        """Returns the value of ProductionVariant.RoutingConfig."""
        chosen: dict[str, Json] = {"RoutingStrategy": STRATEGIES[self.strategy]}
        if self.strategy == PREFIX:
            chosen["PrefixAwareRoutingConfig"] = {
                "PrefixLength": self.prefix_bytes,
                "ConcurrencyThreshold": self.threshold,
            }
        return chosen
