"""A double of `neuronx_distributed_inference.models.config`: keys by vLLM's loader, and how they are saved."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

FILE = "neuron_config.json"


class OnDeviceSamplingConfig:
    """Sampling on the device: by each request's parameters (`dynamic`), or by its own."""

    def __init__(self, **keys: Any) -> None:
        self.dynamic, self.global_topk, self.do_sample = False, 256, False
        vars(self).update(keys)


class FusedSpecNeuronConfig:
    """The draft of a fused speculation. `worker_cls` computes it."""

    def __init__(self, worker_cls: Any, draft_config: Any, draft_model_path: str) -> None:
        self.worker_cls, self.draft_config, self.draft_model_path = worker_cls, draft_config, draft_model_path


class NeuronConfig:
    """How a model is compiled. Any keyword of the real class becomes an attribute."""

    def __init__(self, **keys: Any) -> None:
        self.save_sharded_checkpoint, self.buckets = False, []
        self.enable_eagle_speculation, self.enable_fused_speculation, self.speculation_length = False, False, 0
        vars(self).update(keys)
        sampling = keys.get("on_device_sampling_config")
        self.on_device_sampling_config = OnDeviceSamplingConfig(**sampling) if isinstance(sampling, dict) else sampling


class InferenceConfig:
    """The model's own configuration, and the NeuronConfig."""

    def __init__(self, neuron_config: NeuronConfig, load_config: Callable[["InferenceConfig"], None]) -> None:
        self.neuron_config = neuron_config
        load_config(self)

    def to_json_string(self) -> str:
        return json.dumps(vars(self), default=_document)

    def save(self, directory: Path) -> None:
        directory.mkdir(parents=True, exist_ok=True)
        (directory / FILE).write_text(self.to_json_string())

    @classmethod
    def load(cls, directory: Path) -> "InferenceConfig":
        """:raises FileNotFoundError: nothing was compiled there."""
        return cls._read(json.loads((directory / FILE).read_text()))

    @classmethod
    def _read(cls, saved: dict[str, Any]) -> "InferenceConfig":
        if "fused_spec_config" in saved:
            draft = saved["fused_spec_config"]
            saved["fused_spec_config"] = FusedSpecNeuronConfig(
                **{**draft, "draft_config": cls._read(draft["draft_config"])}
            )
        return cls(NeuronConfig(**saved.pop("neuron_config")), lambda config: vars(config).update(saved))


def _document(value: Any) -> Any:
    return vars(value) if hasattr(value, "__dict__") and not isinstance(value, type) else str(value)
