"""Stands for the compiler and the device: a compiled model is a marker, and NxDI's own modules compute on the CPU.

Everything else is the real software: the plugin, NxDI's configuration, sharding, files, LoRA, cache and sampling. It
works for one rank only.
"""

from __future__ import annotations

import os
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from tests.nxdi_sources.sources import use_sources

METADATA = {
    "vllm-neuron": "0.5.0",
    "neuronx-distributed-inference": "0.10.0",
    "neuronx-distributed": "0.18.0",
}
ENTRY_POINTS = "[vllm.platform_plugins]\nneuron = tests.nxdi_sources.cpu_device:register\n"


def installed_sources(directory: Path, sources: str) -> dict[str, str]:
    """Variables for a process that is to find the plugin and these doubles. `directory` gets the packages' metadata."""
    for name, version in METADATA.items():
        metadata = directory / f"{name.replace('-', '_')}-{version}.dist-info"
        metadata.mkdir(parents=True)
        (metadata / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n")
        if name == "vllm-neuron":
            (metadata / "entry_points.txt").write_text(ENTRY_POINTS)
    earlier = os.environ.get("PYTHONPATH")
    path = [str(directory), str(Path(__file__).parents[2]), *([earlier] if earlier else [])]
    return {"PYTHONPATH": os.pathsep.join(path), "NXDI_SOURCES": sources}


def register() -> str:
    """The plugin's entry point, where it looks for devices."""
    use_sources(os.environ["NXDI_SOURCES"])
    _compile_to_a_marker()
    return "vllm_neuron.platform.NeuronPlatform"


def _compile_to_a_marker() -> None:
    import torch
    from neuronx_distributed.trace.model_builder import ModelBuilder
    from neuronx_distributed_inference.models import application_base

    class Marker(torch.nn.Module):  # type: ignore[misc]
        def forward(self, given: torch.Tensor) -> torch.Tensor:
            return given

    def trace(self: Any, **named: Any) -> Any:
        Path(self.compiler_workdir).mkdir(parents=True, exist_ok=True)
        return torch.jit.script(Marker())

    def load(self: Any, compiled_model_path: str, **named: Any) -> None:
        directory = application_base.normalize_path(compiled_model_path)
        torch.jit.load(directory + application_base.COMPILED_MODEL_FILE_NAME)
        self.traced_model = CpuDevice(self)
        self.load_weights(directory)
        self.is_loaded_to_neuron = True

    ModelBuilder.trace = trace
    application_base.NeuronApplicationBase.load = load


class CpuDevice:
    """What `nxd_model` is to an application: it gets each rank's weights, and computes."""

    def __init__(self, application: Any) -> None:
        self.application = application
        self.nxd_model = self

    def initialize(self, weights: list[dict[str, Any]], start_rank: Any) -> None:
        """Builds the module of each graph. As NeuronApplicationBase.to_cpu does, with the weights that are given."""
        import torch
        from neuronx_distributed.parallel_layers import parallel_state

        (rank,) = weights
        os.environ["NXD_CPU_MODE"] = "1"
        if not torch.distributed.is_initialized():
            raise RuntimeError("vLLM's worker has no process group")
        parallel_state.initialize_model_parallel(tensor_model_parallel_size=1, skip_collective_init=True)
        for wrapper in self.application.models:
            wrapper.config.neuron_config.on_cpu = True
            wrapper.config.neuron_config.attn_kernel_enabled = False  # None chooses a kernel for long prompts.
            module = wrapper.model_cls(wrapper.config, **wrapper.model_init_kwargs)
            # All graphs share the tensors, so an adapter that is exchanged is exchanged for all.
            missing, unexpected = module.load_state_dict(rank, strict=False, assign=True)
            wrong = [name for name in missing if not name.startswith("kv_mgr.")] + unexpected
            if wrong:
                raise RuntimeError(f"weights that do not fit: {wrong[:5]}")
            module.register_forward_pre_hook(_choose_bucket)
            if wrapper.config.neuron_config.lora_config is not None:
                module.register_forward_hook(_keep_adapters)
            wrapper.model = module.eval()
            wrapper.model.nxd_model = SimpleNamespace(weights=weights, state=[{}])


def _choose_bucket(module: Any, given: tuple[Any, ...]) -> None:
    """A graph has the length of its bucket, which its attention mask has too (models/model_wrapper.py:1548)."""
    module.n_positions = given[1].shape[-1]


def _keep_adapters(module: Any, given: tuple[Any, ...], outputs: Any) -> Any:
    """A graph returns the weights of each sequence's adapter, which the device keeps (models/model_wrapper.py:1622)."""
    first = 1 + module.neuron_config.output_logits + len(module.kv_mgr.past_key_values)
    for kept, made in zip(module.lora_weight_manager.get_lora_tensors(), outputs[first:], strict=True):
        kept.data.copy_(made)
    return outputs[:first]
