"""A checkpoint of a few numbers, and load_or_compile over it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from neuron_stand_in.engine_shape import EngineShape
from neuron_stand_in.nxdi.load_or_compile import LoadedModel, load_or_compile
from neuron_stand_in.settings import StandInSettings

CONFIG = {
    "architectures": ["LlamaForCausalLM"],
    "model_type": "llama",
    "hidden_size": 4,
    "num_hidden_layers": 1,
    "num_attention_heads": 2,
    "vocab_size": 10,
}


def write_model(directory: Path) -> Path:
    import torch
    from safetensors.torch import save_file

    directory.mkdir(parents=True)
    (directory / "config.json").write_text(json.dumps(CONFIG))
    save_file({"a": torch.arange(10.0).reshape(5, 2), "b": torch.arange(3.0)}, directory / "model.safetensors")
    return directory


def serve(
    model: Path,
    environment: dict[str, str],
    settings: StandInSettings | None = None,
    shape: dict[str, Any] | None = None,
    **override: Any,
) -> LoadedModel:
    """Loads or compiles, as the worker does."""
    asked = {"max_model_len": 256, "max_num_seqs": 2, "block_size": 256, "hf_config": CONFIG, **(shape or {})}
    return load_or_compile(
        EngineShape(str(model), **asked),
        {"override_neuron_config": override},
        settings or StandInSettings(),
        {"BASE_COMPILE_WORK_DIR": str(model.parent / "workdir"), **environment},
    )
