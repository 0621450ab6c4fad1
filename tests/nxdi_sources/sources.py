"""Where the three checkouts are, and how this process imports them."""

from __future__ import annotations

import sys
from pathlib import Path

from tests.nxdi_sources.closed_packages import stand_in_for_closed_packages

CHECKOUTS = ("neuronx-distributed-inference/src", "neuronx-distributed/src", "vllm-neuron")
# The commits that checked-in facts were read from.
COMMITS = {
    "aws-neuron/neuronx-distributed-inference": "4bcdc54",
    "aws-neuron/neuronx-distributed": "fbac349",
    "vllm-project/vllm-neuron": "3afb0a9",
}


def use_sources(directory: str) -> None:
    """Imports of this process find the checkouts in `directory`, and test doubles for closed packages."""
    sys.path[:0] = [str(Path(directory, checkout)) for checkout in CHECKOUTS]
    stand_in_for_closed_packages()
