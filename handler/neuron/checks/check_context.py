"""The input of a check: the finished draft, its line, and the NeuronConfig that the line would build from it."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Final

from handler.config.endpoint_config import DTYPES, EndpointConfig
from handler.config.fields import field_of_key, field_of_native_key
from handler.config.finding import Finding, Severity
from handler.json_value import Json, mapping
from handler.neuron.checkpoint.model_facts import ModelFacts
from handler.neuron.engine_plan import text_keys
from handler.neuron.hardware.instance_catalogue import InstanceType
from handler.neuron.lines.fork import FORK_091
from handler.neuron.lines.line import ConfigKeys, Line
from handler.neuron.lines.plan_draft import PlanDraft
from handler.neuron.neuron_config.config_values import ConfigValues
from handler.neuron.neuron_config.keys import PLUGIN

HOSTED: Final = "ml."
# Models that a single line has (vLLM Neuron, "Features", SDK 2.33).
LINE_OF_MODEL: Final = {"Qwen3ASRForConditionalGeneration": "native-0.29"}


@dataclass(frozen=True, slots=True)
class CheckContext:
    """A draft, its line and its NeuronConfig.

    :param values: the NeuronConfig: the plugin's defaults, with the override applied.
    :param vision: the same of the vision model; None if there is no configuration for one.
    :param draft_model: the facts of the draft model of a speculation, if they are known.
    :param vllm: the version of vLLM that would run; None if the line has no fixed one.
    :param installed: the versions of the packages that are installed here (`installed_versions()`).
    """

    draft: PlanDraft
    line: Line
    values: ConfigValues
    vllm: str | None = None
    vision: ConfigValues | None = None
    draft_model: ModelFacts | None = None
    installed: Mapping[str, str] = field(default_factory=dict)

    @property
    def config(self) -> EndpointConfig:
        return self.draft.config

    @property
    def facts(self) -> ModelFacts | None:
        return self.draft.facts

    @property
    def instance(self) -> InstanceType | None:
        return self.draft.instance

    @property
    def hosted(self) -> bool:
        """The instance is SageMaker's. It cannot reach the other instances of its endpoint."""
        return (self.config.instance or "").startswith(HOSTED)

    @property
    def nxd(self) -> bool:
        """The line builds a NeuronConfig of NxD Inference."""
        return self.line.keys is ConfigKeys.NXDI

    @property
    def plugin(self) -> bool:
        """The line is the NxDI plugin, not the fork."""
        return self.nxd and not self.line.framework

    @property
    def architectures(self) -> tuple[str, ...]:
        """The names by which the engine finds the model's class: those that vLLM sets, or config.json's."""
        override = mapping(self.draft.args.get("hf_overrides")).get("architectures")
        if isinstance(override, list):
            return tuple(str(name) for name in override)
        return self.facts.architectures if self.facts else ()

    def setting(self, name: str) -> str:
        return self.config.setting(name)

    def number(self, name: str, default: int = 1) -> int:
        """An engine argument's number. The default is vLLM's own."""
        number = self.draft.number(name)
        return default if number is None else number

    def key(self, name: str) -> str:
        """The name by which the user set a NeuronConfig key, as a field or raw."""
        if name in self.draft.raw:
            return self.config.raw_key(name)
        if name in (self.config.text_neuron_config or {}):
            return f"{self.config.setting('text_neuron_config')}.{name}"
        named = field_of_native_key() if self.line.keys is ConfigKeys.NATIVE else field_of_key()
        return self.config.setting(named.get(name, name)) or "neuron_config"


# A finding's setting is a field or an engine argument, which the planner shows as the user named it, or any other name.
Check = Callable[[CheckContext], Iterator[Finding]]
# Argument or field -> the values that a line has, and what it does with another one.
Rejected = Mapping[str, tuple[tuple[Json, ...], str]]


def rejected(context: CheckContext, code: str, table: Rejected) -> Iterator[Finding]:
    """An error for each value that the table does not have."""
    for name, (accepted, why) in table.items():
        value = getattr(context.config, name, context.draft.args.get(name))
        if value not in accepted:
            yield error(code, name, f"{name} is {str(value)[:40]}: {why}", "Remove it.")


def unread(context: CheckContext, code: str, table: Rejected) -> Iterator[Finding]:
    """A warning for each value that has no effect: those that the table has would have none anywhere."""
    for name, (idle, why) in table.items():
        if context.draft.args.get(name) not in idle:
            yield warning(code, name, f"it has no effect: {why}", "Remove it.")


def error(code: str, setting: str, why: str, fix: str) -> Finding:
    return Finding(code, Severity.ERROR, setting, why, fix)


def warning(code: str, setting: str, why: str, fix: str) -> Finding:
    return Finding(code, Severity.WARNING, setting, why, fix)


def info(code: str, setting: str, why: str, fix: str) -> Finding:
    return Finding(code, Severity.INFO, setting, why, fix)


def unsupported_model(context: CheckContext, why: str, fix: str) -> Finding:
    """:param fix: what to do, unless another line has the model."""
    named = context.facts.architectures if context.facts else ()
    line = next((LINE_OF_MODEL[name] for name in named if name in LINE_OF_MODEL), None)
    fix = fix if line is None else f"Set ENDPOINT_LINE to {line}, which has the model."
    return error("unsupported-model", "model", why, fix)


def effective(draft: PlanDraft) -> dict[str, Json]:
    """The NeuronConfig that the plugin would build: its defaults, then the override."""
    keys = text_keys(draft.override)
    return {**_defaults(draft), **{key: value for key, value in keys.items() if key not in PLUGIN}}


def effective_vision(draft: PlanDraft) -> dict[str, Json] | None:
    """The same for the vision model of a multimodal one."""
    override = draft.override.get("vision_neuron_config")
    return {**_defaults(draft), **override} if isinstance(override, dict) else None


def _defaults(draft: PlanDraft) -> dict[str, Json]:
    """vllm-project/vllm-neuron, worker/neuronx_distributed_model_loader.py, _get_default_neuron_config."""
    args = draft.args
    sequences, length = draft.number("max_num_seqs") or 1, draft.number("max_model_len") or 128
    chunked = args.get("enable_chunked_prefill") is True
    prefix = args.get("enable_prefix_caching") is True
    keys: dict[str, Json] = {
        "tp_degree": draft.number("tensor_parallel_size") or 1,
        "ctx_batch_size": 1,
        "batch_size": 1 if chunked else sequences,
        "max_context_length": draft.number("max_num_batched_tokens") or length if chunked else length,
        "seq_len": length,
        "enable_bucketing": True,
        "is_continuous_batching": sequences > 1 and not chunked,
        "quantized": False,
        "torch_dtype": dtype_of(draft),
        "padding_side": "right",
        "on_device_sampling_config": {"dynamic": True, "deterministic": False},
        "is_block_kv_layout": chunked or prefix,
        "is_prefix_caching": prefix,
    }
    if "speculative_config" in args or "speculative_model" in args:
        tokens = draft.config.num_speculative_tokens
        keys.update(enable_fused_speculation=True, speculation_length=tokens)
        if draft.config.speculation == "eagle":
            keys["enable_eagle_speculation"] = True
    elif draft.line == FORK_091.name:  # vLLM 0.9.1, model_loader/neuronx_distributed.py:605
        keys["sequence_parallel_enabled"] = True
    return keys


def dtype_of(draft: PlanDraft) -> str:
    """The data type that vLLM would use, as NeuronConfig spells it."""
    given = draft.args.get("dtype")
    if not isinstance(given, str) or given == "auto":
        given = (draft.facts.torch_dtype if draft.facts else None) or "bfloat16"
    plain = given.removeprefix("torch.")
    return DTYPES.get(plain, plain)
