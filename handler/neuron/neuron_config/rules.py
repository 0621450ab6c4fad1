"""Every rule of NeuronConfig, in one table."""

from __future__ import annotations

from typing import Final

from handler.neuron.neuron_config.feature_rules import FEATURE_RULES
from handler.neuron.neuron_config.kernel_rules import KERNEL_RULES
from handler.neuron.neuron_config.rule import ConfigRule
from handler.neuron.neuron_config.shape_rules import SHAPE_RULES

RULES: Final[tuple[ConfigRule, ...]] = SHAPE_RULES + FEATURE_RULES + KERNEL_RULES
