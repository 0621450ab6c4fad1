"""Which sampling parameters each Neuron line supports. The device silently ignores most of them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Final

from handler.json_value import Json
from handler.neuron.engine_plan import EnginePlan

SUPPORTED: Final = frozenset({"temperature", "top_p", "top_k"})
# The device samples from this many tokens at most (vllm-project/vllm-neuron, neuronx_distributed_model_runner.py). It
# is also transformers-neuronx's own limit.
MOST: Final = 256
KEY: Final = "on_device_sampling_config"


@dataclass(frozen=True, slots=True)
class SamplingLimits:
    """The sampling parameters that an engine supports.

    :param on_device: the device samples. It does not enforce structured output (except with the native plugin).
    :param global_topk: the largest top_k with an effect; None if there is no limit.
    :param supported: the parameters with an effect; None for all, empty for none.
    :param ignored: parameters without an effect although the CPU samples.
    :param prompt_logprobs: the engine can return the prompt's log probabilities. NxD Inference's runner never does
        (vllm-project/vllm-neuron, worker/neuronx_distributed_model_runner.py).
    """

    on_device: bool
    global_topk: int | None
    supported: frozenset[str] | None
    prompt_logprobs: bool = False
    ignored: frozenset[str] = frozenset()

    @property
    def logprobs(self) -> bool:
        """Whether the engine can return log probabilities of generated tokens. A device returns token ids only."""
        return not self.on_device

    def supports(self, parameter: str) -> bool:
        return self.supported is None or parameter in self.supported


ON_CPU: Final = SamplingLimits(on_device=False, global_topk=None, supported=None, prompt_logprobs=True)
NXD_ON_CPU: Final = SamplingLimits(on_device=False, global_topk=None, supported=None)
# The plugin's batch has no logits processors, and its requests have no generator (plugin 0.5.0,
# worker/neuronx_distributed_model_runner.py:150 and :976).
PLUGIN_ON_CPU: Final = replace(NXD_ON_CPU, ignored=frozenset({"logit_bias", "min_p", "seed"}))


def sampling_limits(plan: EnginePlan) -> SamplingLimits:
    """The limits of a plan's engine. If the user names compiled artifacts, their limits apply instead."""
    if plan.line.startswith("nxdi"):
        return _nxd(_section(plan, "override_neuron_config"), {}, PLUGIN_ON_CPU)
    if plan.line.startswith("native"):
        return _native(_section(plan, "neuron_config"))
    if plan.line.startswith("fork"):
        if plan.env.get("NEURON_ON_DEVICE_SAMPLING_DISABLED", "0") not in ("", "0"):
            return NXD_ON_CPU
        override = plan.engine_args.get("override_neuron_config")
        keys = override if isinstance(override, dict) else {}
        if plan.env.get("VLLM_NEURON_FRAMEWORK") == "transformers-neuronx":
            return SamplingLimits(True, MOST, SUPPORTED)
        speculates = "speculative_model" in plan.engine_args or "speculative_config" in plan.engine_args
        # The fork's default under speculation is greedy (vllm/model_executor/model_loader/neuronx_distributed.py).
        return _nxd(keys, {"top_k": 1, "do_sample": False} if speculates else {})
    return ON_CPU


def _section(plan: EnginePlan, name: str) -> Mapping[str, Json]:
    additional = plan.engine_args.get("additional_config")
    section = additional.get(name) if isinstance(additional, dict) else None
    return section if isinstance(section, dict) else {}


def _nxd(keys: Mapping[str, Json], default: Mapping[str, Json], on_cpu: SamplingLimits = NXD_ON_CPU) -> SamplingLimits:
    """The limits of NxD Inference. Its default uses each request's parameters; any configuration replaces it."""
    text = keys.get("text_neuron_config")
    if isinstance(text, dict):
        keys = text
    sampling = keys.get(KEY, default or {"dynamic": True})
    if not isinstance(sampling, dict):
        return on_cpu
    limit = sampling.get("global_topk", MOST)
    most = min(limit, MOST) if isinstance(limit, int) and limit > 0 else MOST
    return SamplingLimits(True, most, SUPPORTED if sampling.get("dynamic") is True else frozenset())


def _native(keys: Mapping[str, Json]) -> SamplingLimits:
    sampling = keys.get(KEY)
    if not isinstance(sampling, dict):
        return ON_CPU
    greedy = sampling.get("all_greedy") is True
    return SamplingLimits(True, MOST, frozenset() if greedy else SUPPORTED)
