"""Which instance of an endpoint a request goes to.

botocore's model of CreateEndpointConfig has four ways (`ProductionVariantRoutingConfig`): by the fewest requests in
flight, at random, by the beginning of the body, and KV_AWARE. The last is left out: by its documentation there it works
with supported containers only, SageMaker's own for vLLM for one, and what it asks of them is not public.
"""

from __future__ import annotations

from dataclasses import dataclass

from handler.errors import SettingError
from handler.json_value import Json

LEAST, RANDOM, PREFIX = "least-outstanding", "random", "prefix"
STRATEGIES = {LEAST: "LEAST_OUTSTANDING_REQUESTS", RANDOM: "RANDOM", PREFIX: "PREFIX_AWARE"}
# PrefixAwareRoutingConfig, PrefixLength and ConcurrencyThreshold.
SHORTEST, LONGEST, MOST_IN_FLIGHT = 1024, 65536, 1024
# A system prompt of about 1,000 tokens, and JSON's own bytes before it.
PREFIX_BYTES = 4096
KV = "KV_AWARE needs a container that tells its cache's content, as this one does not: give prefix."


@dataclass(frozen=True, slots=True)
class Routing:
    """:param prefix_bytes: of a body, from its beginning; what requests must share to go to the same instance.
    :param threshold: requests in flight from which on an instance gets no more of its prefix; None without a prefix.
    """

    strategy: str = LEAST
    prefix_bytes: int = PREFIX_BYTES
    threshold: int | None = None

    def __post_init__(self) -> None:
        if self.strategy not in STRATEGIES:
            problem = f"'{self.strategy[:40]}' is no routing strategy"
            fix = f"Give {', '.join(STRATEGIES)}."
            raise SettingError("--routing", problem, KV if "kv" in self.strategy.lower() else fix)
        if self.strategy != PREFIX:
            return
        if not SHORTEST <= self.prefix_bytes <= LONGEST:
            problem = f"SageMaker compares {SHORTEST} to {LONGEST} bytes, not {self.prefix_bytes}"
            raise SettingError("--prefix-bytes", problem, "Give what a shared system prompt has, and some more.")
        if self.threshold is None or not 1 <= self.threshold <= MOST_IN_FLIGHT:
            given = "none is known" if self.threshold is None else f"not {self.threshold}"
            problem = f"an instance keeps its prefix up to 1 to {MOST_IN_FLIGHT} requests in flight, {given}"
            raise SettingError("--prefix-threshold", problem, "Give max_num_seqs: beyond it requests wait.")

    def members(self) -> dict[str, Json]:
        """As ProductionVariant.RoutingConfig."""
        chosen: dict[str, Json] = {"RoutingStrategy": STRATEGIES[self.strategy]}
        if self.strategy == PREFIX:
            chosen["PrefixAwareRoutingConfig"] = {
                "PrefixLength": self.prefix_bytes,
                "ConcurrencyThreshold": self.threshold,
            }
        return chosen
