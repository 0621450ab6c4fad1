"""Which sampling parameters each Neuron line supports. The device silently ignores most of them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

from handler.json_value import Json
from handler.neuron.engine_plan import EnginePlan

SUPPORTED: Final = frozenset({"temperature", "top_p", "top_k"})
# What the native plugin's CPU sampling has as well. No min_p, logit_bias or logprob_token_ids reaches it, and no line
# of that plugin returns log probabilities of a prompt (run through the rules of vllm-neuron 0.24.0.1.1.0).
NATIVE_ON_CPU: Final = frozenset(
    {
        *SUPPORTED,
        *("seed", "allowed_token_ids", "bad_words", "min_tokens"),
        *("repetition_penalty", "frequency_penalty", "presence_penalty"),
    }
)
# The device samples from this many tokens at most (vllm-project/vllm-neuron, neuronx_distributed_model_runner.py). It
# is also transformers-neuronx's own limit.
MOST: Final = 256
KEY: Final = "on_device_sampling_config"
CPU_SETTING: Final = "ENDPOINT_ON_DEVICE_SAMPLING=false"
# The native plugin: the settings that turn a parameter on, or that there is none.
NATIVE_SETTINGS: Final = {
    "logprobs": "ENDPOINT_LOGPROBS=true",
    "grammar": "ENDPOINT_STRUCTURED_OUTPUTS=true",
    "min_p": "",
    "logit_bias": "",
    "logprob_token_ids": "",
}
# Speculation on the native plugin. Only these reach the tokens of the draft on the CPU, and no step that verifies them
# returns log probabilities (vllm-neuron 0.24.0.1.1.0, vllm/sample/rejection_sampler.py and _sample of the runner).
SPECULATION_ON_CPU: Final = SUPPORTED | {"seed"}
SPECULATION_SETTINGS: Final = {
    **NATIVE_SETTINGS,
    **dict.fromkeys(NATIVE_ON_CPU - SPECULATION_ON_CPU | {"logprobs"}, ""),
}


@dataclass(frozen=True, slots=True)
class SamplingLimits:
    """The sampling parameters that an engine supports.

    :param on_device: the device samples.
    :param global_topk: the largest top_k with an effect; None if there is no limit.
    :param supported: the parameters with an effect; None for all, empty for none. `grammar` is structured output.
    :param greedy: every request is sampled greedily, so that asking for it has an effect.
    :param prompt_logprobs: the engine can return the prompt's log probabilities. NxD Inference's runner never does
        (vllm-project/vllm-neuron, worker/neuronx_distributed_model_runner.py).
    :param settings: parameter without an effect -> the setting that gives it one; "" if there is none.
    """

    on_device: bool
    global_topk: int | None
    supported: frozenset[str] | None
    prompt_logprobs: bool = False
    settings: Mapping[str, str] = field(default_factory=dict, compare=False)
    greedy: bool = False

    @property
    def logprobs(self) -> bool:
        """Whether the engine can return log probabilities of generated tokens. NxDI's device returns token ids only."""
        return not self.on_device if self.supported is None else "logprobs" in self.supported

    def setting(self, parameter: str) -> str:
        """The setting that gives a parameter its effect; "" if there is none."""
        return self.settings.get(parameter, CPU_SETTING if self.on_device else "")

    def supports(self, parameter: str) -> bool:
        return self.supported is None or parameter in self.supported


ON_CPU: Final = SamplingLimits(on_device=False, global_topk=None, supported=None, prompt_logprobs=True)
LORA_ON_CPU: Final = SamplingLimits(on_device=False, global_topk=None, supported=None)
# The sampler of vLLM's engine V0, whose adapter takes no grammar (handler/engine/v0). On the device a token's id would
# be its log probability (vLLM 0.9.1, model_loader/neuron.py and neuronx_distributed.py, sample).
FORK_ON_CPU: Final = SamplingLimits(
    on_device=False,
    global_topk=None,
    supported=NATIVE_ON_CPU | {"min_p", "logit_bias", "logprobs"},
    settings={"grammar": ""},
)
# The NxDI plugin's batch has no logits processors, and its requests have no generator (plugin 0.5.0,
# worker/neuronx_distributed_model_runner.py:150 and :976).
PLUGIN_ON_CPU: Final = SamplingLimits(
    on_device=False,
    global_topk=None,
    supported=NATIVE_ON_CPU - {"seed"} | {"logprobs", "grammar"},
    settings={"seed": "", "min_p": "", "logit_bias": ""},
)
# optimum-neuron's runner has no generators and no grammars, an empty list of logits processors, and returns no log
# probabilities. Its masks would ban what is allowed, in the rows of other requests (0.4.5, vllm/runner.py).
PENALTIES: Final = frozenset({"repetition_penalty", "frequency_penalty", "presence_penalty"})
OPTIMUM_SETTINGS: Final = dict.fromkeys(NATIVE_ON_CPU | NATIVE_SETTINGS.keys(), "")


def sampling_limits(plan: EnginePlan) -> SamplingLimits:
    """The limits of a plan's engine. If the user names compiled artifacts, their limits apply instead."""
    if plan.line.startswith("nxdi"):
        return _nxd(plan.nxd_keys, {}, PLUGIN_ON_CPU)
    if plan.line.startswith("native"):
        speculates = "speculative_config" in plan.engine_args
        return _native(plan.section("neuron_config"), plan.engine_args.get("async_scheduling") is False, speculates)
    if plan.line == "optimum":
        return _optimum(plan.section("neuron_config"))
    if plan.line.startswith("fork"):
        if plan.env.get("NEURON_ON_DEVICE_SAMPLING_DISABLED", "0") not in ("", "0"):
            return FORK_ON_CPU
        if plan.line.endswith("-tnx"):
            return SamplingLimits(True, MOST, SUPPORTED, settings=FORK_ON_CPU.settings)
        speculates = "speculative_model" in plan.engine_args or "speculative_config" in plan.engine_args
        # The fork's default under speculation is greedy (vllm/model_executor/model_loader/neuronx_distributed.py).
        greedy: dict[str, Json] = {"top_k": 1, "do_sample": False}
        return _nxd(plan.nxd_keys, greedy if speculates else {}, FORK_ON_CPU)
    # vLLM's CPU kernels for LoRA fail at the log probabilities of a prompt beside other requests, and end the core
    # (vllm/lora/punica_wrapper/punica_cpu.py, 0.16.0).
    return LORA_ON_CPU if plan.engine_args.get("enable_lora") else ON_CPU


def _nxd(keys: Mapping[str, Json], default: Mapping[str, Json], on_cpu: SamplingLimits) -> SamplingLimits:
    """The limits of NxD Inference. Its default uses each request's parameters; any configuration replaces it."""
    sampling = keys.get(KEY, default or {"dynamic": True})
    if not isinstance(sampling, dict):
        return on_cpu
    limit = sampling.get("global_topk", MOST)
    most = min(limit, MOST) if isinstance(limit, int) and limit > 0 else MOST
    if sampling.get("dynamic") is True:
        return SamplingLimits(True, most, SUPPORTED, settings=on_cpu.settings)
    greedy = sampling.get("do_sample") is not True or sampling.get("top_k", 1) == 1
    return SamplingLimits(True, most, frozenset(), settings=on_cpu.settings, greedy=greedy)


def _native(keys: Mapping[str, Json], synchronous: bool, speculates: bool) -> SamplingLimits:
    """The limits of the native plugin. Log probabilities and masks are for synchronous scheduling."""
    sampling = keys.get(KEY, {})
    settings = SPECULATION_SETTINGS if speculates else NATIVE_SETTINGS
    extra = {"logprobs"} if synchronous and not speculates else set()
    if synchronous and keys.get("enable_structured_outputs") is True:
        extra.add("grammar")
    if not isinstance(sampling, dict):
        on_cpu = SPECULATION_ON_CPU if speculates else NATIVE_ON_CPU
        return SamplingLimits(False, None, on_cpu | extra, settings=settings)
    most = str(sampling.get("max_top_k", MOST)).strip()  # the plugin calls `int` on it
    greedy = str(sampling.get("all_greedy", False)).lower() in ("true", "1", "yes")
    supported = frozenset() if greedy else SUPPORTED
    limit = int(most) if most.isascii() and most.isdigit() and len(most) < 8 else MOST
    return SamplingLimits(True, limit, supported | extra, settings=settings, greedy=greedy)


def _optimum(exported: Mapping[str, Json]) -> SamplingLimits:
    """The limits of an export: where it samples, and from how many tokens, on the CPU too (vllm/sampler.py)."""
    most, on_device = exported.get("max_topk"), exported.get("on_device_sampling") is not False
    supported = SUPPORTED if on_device else SUPPORTED | PENALTIES
    return SamplingLimits(on_device, most if isinstance(most, int) else MOST, supported, settings=OPTIMUM_SETTINGS)
