"""Every check, in the order in which its findings are told."""

from __future__ import annotations

from typing import Final

from handler.neuron.checks.arguments import ARGUMENTS
from handler.neuron.checks.case import Check
from handler.neuron.checks.features import unsupported
from handler.neuron.checks.graph import GRAPH
from handler.neuron.checks.models import MODELS
from handler.neuron.checks.native import NATIVE
from handler.neuron.checks.neuron_config import rules, spelling
from handler.neuron.checks.nodes import NODES
from handler.neuron.checks.sampling import SAMPLING
from handler.neuron.checks.start import START
from handler.neuron.checks.topology import TOPOLOGY

CHECKS: Final[tuple[Check, ...]] = (
    unsupported,
    *ARGUMENTS,
    *START,
    *TOPOLOGY,
    *NODES,
    spelling,
    rules,
    *GRAPH,
    *SAMPLING,
    *MODELS,
    *NATIVE,
)
