"""Lists every check, in the order in which the findings are reported."""

from __future__ import annotations

from typing import Final

from handler.neuron.checks.argument_pairs import argument_pairs
from handler.neuron.checks.check_context import Check
from handler.neuron.checks.cpu_start import cpu_start
from handler.neuron.checks.draft_models import DRAFTS
from handler.neuron.checks.graph import GRAPH, SAMPLING
from handler.neuron.checks.legacy_lines import LEGACY
from handler.neuron.checks.line_support import LINE_SUPPORT
from handler.neuron.checks.model_checks import MODELS
from handler.neuron.checks.model_classes import MODEL_CLASSES
from handler.neuron.checks.native_buckets import BUCKETS
from handler.neuron.checks.native_start import CPU_COMPILES, NATIVE
from handler.neuron.checks.neuron_config import rules, silent, spelling
from handler.neuron.checks.optimum_start import OPTIMUM
from handler.neuron.checks.several_nodes import NODES
from handler.neuron.checks.start_values import START
from handler.neuron.checks.topology import TOPOLOGY

CHECKS: Final[tuple[Check, ...]] = (
    *LEGACY,
    *CPU_COMPILES,
    *LINE_SUPPORT,
    argument_pairs,
    cpu_start,
    *START,
    *MODEL_CLASSES,
    *TOPOLOGY,
    *NODES,
    spelling,
    silent,
    rules,
    *GRAPH,
    *SAMPLING,
    *MODELS,
    *DRAFTS,
    *NATIVE,
    *BUCKETS,
    *OPTIMUM,
)
