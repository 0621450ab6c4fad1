"""Checks a model's defaults for requests: generation_config.json, and vLLM's `override_generation_config`.

vLLM merges them into every request that does not set the parameter (config/model.py, get_diff_sampling_param), and
looks at a value only then (sampling_params.py, `_verify_args`). A wrong one fails all these requests, or the warm-up.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Final

from handler.json_value import Json

FILE: Final = "generation_config.json"
OVERRIDE: Final = "override_generation_config"
# The values of `generation_config` with which vLLM reads the model's own file.
OWN_FILE: Final = ("auto", None)


@dataclass(frozen=True, slots=True)
class DefaultRange:
    """The values of one parameter that vLLM's `SamplingParams` accepts."""

    accepts: Callable[[float], bool]
    words: str
    whole: bool = False

    def fits(self, value: Json) -> bool:
        """Whether it is a number within the range. null means the default."""
        if value is None:
            return True
        if isinstance(value, bool) or not isinstance(value, int if self.whole else int | float):
            return False
        return (isinstance(value, int) or math.isfinite(value)) and self.accepts(value)


RANGES: Final[Mapping[str, DefaultRange]] = {
    "temperature": DefaultRange(lambda value: value >= 0, "a number of 0 or more"),
    "top_p": DefaultRange(lambda value: 0 < value <= 1, "a number above 0, and at most 1"),
    "min_p": DefaultRange(lambda value: 0 <= value <= 1, "a number from 0 to 1"),
    "repetition_penalty": DefaultRange(lambda value: value > 0, "a number above 0"),
    "top_k": DefaultRange(lambda value: value >= -1, "a whole number of 1 or more, or 0 for no limit", whole=True),
    "max_new_tokens": DefaultRange(lambda value: value >= 1, "a whole number of 1 or more", whole=True),
}


def wrong_defaults(document: Mapping[str, Json]) -> Iterator[tuple[str, str]]:
    """What is wrong with the values, and how to fix it."""
    for name, allowed in RANGES.items():
        if not allowed.fits(value := document.get(name)):
            why = f"{name} is {value!r:.60}, with which requests that do not set it fail"
            yield why, f"Give {allowed.words}, or remove it."
