"""Images, which this double does not have."""

from typing import Any


def create_vision_mask(*arguments: Any) -> Any:
    raise NotImplementedError
