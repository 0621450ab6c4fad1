"""The plugin's way to a model: load what is there without a question, recompile on two kinds of error, else die.

Source: vllm-project/vllm-neuron, worker/neuronx_distributed_model_loader.py.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from neuron_stand_in.checkpoint import Tensors, read_checkpoint, read_shards
from neuron_stand_in.engine_shape import EngineShape
from neuron_stand_in.faults import strike
from neuron_stand_in.nxdi import inference_config, model_file
from neuron_stand_in.nxdi.compiler import compile_model, weights_directory
from neuron_stand_in.nxdi.neuron_config import build_neuron_config
from neuron_stand_in.nxdi.overrides import KEY, neuron_arguments
from neuron_stand_in.settings import Stage, StandInSettings

logger = logging.getLogger("neuron_stand_in")


@dataclass(frozen=True, slots=True)
class LoadedModel:
    """`neuron_config` is the one that was SAVED: it serves, whatever was asked for now."""

    directory: Path
    document: Mapping[str, Any]
    tensors: Tensors
    compiled: bool

    @property
    def neuron_config(self) -> Mapping[str, Any]:
        config: Mapping[str, Any] = self.document["neuron_config"]
        return config


def load_or_compile(
    shape: EngineShape,
    additional_config: Mapping[str, Any],
    settings: StandInSettings,
    environment: Mapping[str, str],
) -> LoadedModel:
    """:raises Exception: everything but FileNotFoundError and ValueError while loading ends the engine."""
    if bool(int(environment.get("NEURON_ON_DEVICE_SAMPLING_DISABLED", "0"))):
        raise TypeError("'module' object is not callable")  # 0.5.0 calls the module vllm.v1.sample.sampler
    neuron_config = build_neuron_config(neuron_arguments(shape, additional_config), environment)
    document = inference_config.inference_config(shape, neuron_config)
    directory = inference_config.artifacts_directory(shape.model, document, environment)
    try:
        loaded = load(directory, shape, settings, environment, compiled=False)
    except (FileNotFoundError, ValueError) as error:
        logger.warning("Unable to find precompiled artifacts from %s. Recompiling... (%s)", directory, error)
    else:
        if additional_config.get(KEY):
            logger.warning("Using pre-compiled artifacts, override_neuron_config will be ignored")
        return loaded
    compile_model(document, directory, settings, environment)
    return load(directory, shape, settings, environment, compiled=True)


def load(
    directory: Path,
    shape: EngineShape,
    settings: StandInSettings,
    environment: Mapping[str, str],
    *,
    compiled: bool,
) -> LoadedModel:
    """What a directory has. No digest, version, length or batch is compared with what was asked for."""
    document = inference_config.load(directory, environment)
    model_file.check(directory, document, shape.hf_config)
    neuron_config = document["neuron_config"]
    if neuron_config["save_sharded_checkpoint"]:
        tensors = read_shards(directory, neuron_config["world_size"])
    else:
        tensors = read_checkpoint(weights_directory(document, directory))
    strike(settings, Stage.LOAD)
    logger.info("Loaded model artifacts from %s", directory)
    return LoadedModel(directory, document, tensors, compiled)
