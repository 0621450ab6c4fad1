"""neuron_config.json: the whole InferenceConfig, and the directory that its digest names."""

from __future__ import annotations

import hashlib
import json
import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from neuron_stand_in.engine_shape import EngineShape
from neuron_stand_in.nxdi.neuron_config import build_neuron_config

NAME = "neuron_config.json"


def inference_config(shape: EngineShape, neuron_config: Mapping[str, Any]) -> dict[str, Any]:
    document = {**shape.hf_config, "_name_or_path": shape.model, "metadata": None, "num_cores_per_group": 1}
    document["neuron_config"] = dict(neuron_config)
    document["fused_spec_config"] = None
    if neuron_config["enable_fused_speculation"]:
        assert shape.speculation is not None, "Must pass speculative_config if using Neuron Speculation."
        draft = {**neuron_config, "enable_fused_speculation": False, "is_eagle_draft": False}
        if neuron_config["enable_eagle_speculation"]:
            draft["is_eagle_draft"] = True
        else:
            draft["speculation_length"] = 0
        document["fused_spec_config"] = {
            "draft_model_path": shape.speculation["model"],
            "draft_config": {"neuron_config": draft},
        }
    return document


def text(document: Mapping[str, Any]) -> str:
    return json.dumps(document, indent=2, sort_keys=True, default=str)


def save(document: Mapping[str, Any], directory: Path) -> None:
    directory.mkdir(parents=True, exist_ok=True)
    (directory / NAME).write_text(text(document) + "\n")


def load(directory: Path, environment: Mapping[str, str]) -> dict[str, Any]:
    """:raises FileNotFoundError: there is none. :raises ValueError: it is no JSON, or breaks a rule."""
    document: dict[str, Any] = json.loads((directory / NAME).read_text())
    if "neuron_config" not in document:
        raise ValueError("Config must include a NeuronConfig")
    document["neuron_config"] = build_neuron_config(document["neuron_config"], environment)
    return document


def artifacts_directory(model: str, document: Mapping[str, Any], environment: Mapping[str, str]) -> Path:
    """Where artifacts are loaded from and compiled to: NEURON_COMPILED_ARTIFACTS as it stands, or beside the model.

    The latter is deleted here, before anyone looks into it: the plugin always recompiles (vllm-project/vllm-neuron,
    worker/neuronx_distributed_model_loader.py).

    :raises OSError: the model's directory is read-only, as /opt/ml/model is on SageMaker.
    """
    given = environment.get("NEURON_COMPILED_ARTIFACTS")
    if given:
        return Path(given)
    digest = hashlib.md5(text(document).encode(), usedforsecurity=False).hexdigest()
    base = Path(model) if Path(model).exists() else Path("local-models") / model
    directory = base / "neuron-compiled-artifacts" / digest
    directory.mkdir(parents=True, exist_ok=True)
    shutil.rmtree(directory, ignore_errors=True)
    return directory
