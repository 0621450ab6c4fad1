"""NeuronConfig itself as the judge, where NxD Inference is installed: what it raises is a finding."""

from __future__ import annotations

import copy
import importlib
from collections.abc import Mapping

from handler.config.finding import Finding, Severity
from handler.json_value import Json

MODULE = "neuronx_distributed_inference.models.config"
# What the class raises about its arguments (IncompatibleConfigError is a ValueError).
JUDGEMENTS = (ValueError, AssertionError, TypeError, IndexError, AttributeError, ZeroDivisionError)


def construct(values: Mapping[str, Json], module: str = MODULE) -> Finding | None:
    """Builds the real class from these keys.

    :returns: a finding with what it raised; None when it did not, when NxD Inference is not installed, or when it
        could not judge (no Neuron runtime to ask for the platform, say).
    """
    try:
        neuron_config = importlib.import_module(module).NeuronConfig
    except ImportError:
        return None
    try:
        neuron_config(**copy.deepcopy(dict(values)))  # It sorts the lists that it is given.
    except JUDGEMENTS as error:
        reason = f"{type(error).__name__}: {error}" if str(error) else type(error).__name__
        return Finding(
            "neuron-config-raises",
            Severity.ERROR,
            "neuron_config",
            f"NxD Inference's own NeuronConfig refuses these settings ({reason[:400]})",
            "Change the setting that it names.",
        )
    except Exception:
        return None
    return None
