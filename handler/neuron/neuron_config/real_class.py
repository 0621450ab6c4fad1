"""Builds NxD Inference's own NeuronConfig, if it is installed, and reports its error as a finding."""

from __future__ import annotations

import copy
import importlib
import logging
from collections.abc import Callable, Mapping

from handler.config.finding import Finding, Severity
from handler.json_value import Json

logger = logging.getLogger(__name__)
NeuronConfigBuilder = Callable[[Mapping[str, Json]], Finding | None]
MODULE = "neuronx_distributed_inference.models.config"
# The errors that the class raises about its arguments (IncompatibleConfigError is a ValueError).
ARGUMENT_ERRORS = (ValueError, AssertionError, TypeError, IndexError, AttributeError, ZeroDivisionError)


def construct(values: Mapping[str, Json], module: str = MODULE) -> Finding | None:
    """Builds the real class from these keys.

    :returns: a finding with the error that it raised; None if it raised none, if NxD Inference is not installed, or if
        it failed for another reason (for example because there is no Neuron runtime).
    """
    try:
        neuron_config = importlib.import_module(module).NeuronConfig
    except ImportError:
        return None
    try:
        neuron_config(**copy.deepcopy(dict(values)))  # It sorts the lists that it is given.
    except ARGUMENT_ERRORS as error:
        reason = f"{type(error).__name__}: {error}" if str(error) else type(error).__name__
        why = f"NxD Inference's own NeuronConfig rejects these settings ({reason[:400]})"
        fix = "Change the setting that the message in brackets names."
        return Finding("neuron-config-raises", Severity.ERROR, "neuron_config", why, fix)
    except Exception as error:
        logger.info("NxD Inference's NeuronConfig could not be built here: %r", error)
    return None
