"""`PlanDraft`: the plan while a line writes it, and what lines share: vLLM's own arguments, and what a plan chooses."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

from handler.config.dialects.neuron_variables import FRAMEWORK_VARIABLE
from handler.config.dialects.vllm_names import SPECULATIVE
from handler.config.endpoint_config import EndpointConfig
from handler.config.fields import nxd_key
from handler.config.finding import Finding, Severity, conflict
from handler.errors import SettingError
from handler.json_value import Json, mapping, whole_number, whole_numbers
from handler.neuron.checkpoint.model_facts import ModelFacts, number, text_part
from handler.neuron.engine_plan import EnginePlan
from handler.neuron.hardware import instance_catalogue as catalogue
from handler.neuron.hardware.current_machine import HostCpu
from handler.neuron.hardware.instance_catalogue import InstanceType

# Long enough for a chat and short enough to compile in minutes. A model with a shorter context gets less.
DEFAULT_LENGTH: Final = 4096
# The plugin's own default (vllm-project/vllm-neuron, vllm_neuron/platform.py).
DEFAULT_SEQUENCES: Final = 32
# Tokens in a chunk of chunked prefill.
DEFAULT_CHUNK: Final = 256
# Reads JSON schemas, regular expressions and EBNF. vLLM 0.13, 0.16 and 0.24 require it (requirements/).
GRAMMAR_BACKEND: Final = "xgrammar"
# Arguments that vLLM 0.7.2 and 0.9.1 have and 0.11 does not.
LEGACY_ARGUMENTS: Final = ("device", "use_v2_block_manager", "speculative_max_model_len")


@dataclass(slots=True)
class PlanDraft:
    """An unfinished plan. A line completes the configuration and writes its spelling into it.

    :param cpu: this machine's CPU, if the plan is for this machine.
    :param args: vLLM's engine arguments.
    :param override: the NeuronConfig keys that the plan sets, as the line names them.
    :param env: environment variables that the line reads.
    """

    config: EndpointConfig
    facts: ModelFacts | None = None
    instance: InstanceType | None = None
    line: str = ""
    cpu: HostCpu | None = None
    args: dict[str, Json] = field(default_factory=dict)
    override: dict[str, Json] = field(default_factory=dict)
    additional: dict[str, Json] = field(default_factory=dict)
    env: dict[str, str] = field(default_factory=dict)
    findings: list[Finding] = field(default_factory=list)

    @property
    def raw(self) -> Mapping[str, Json]:
        """The raw NeuronConfig keys, with underscores (the native plugin's on its line)."""
        return self.config.neuron_config

    def error(self, code: str, setting: str, why: str, fix: str) -> None:
        """:param setting: a field or an engine argument, which is shown as the user named it, or any other name."""
        self.findings.append(Finding(code, Severity.ERROR, self.config.setting(setting), why, fix))

    def warn(self, code: str, setting: str, why: str, fix: str) -> None:
        self.findings.append(Finding(code, Severity.WARNING, self.config.setting(setting), why, fix))

    def inform(self, code: str, setting: str, why: str, fix: str) -> None:
        self.findings.append(Finding(code, Severity.INFO, setting, why, fix))

    def conflict(self, setting: str, value: object, other: str, other_value: object) -> None:
        names = self.config.setting(setting), self.config.setting(other)
        self.findings.append(conflict(names[0], value, names[1], other_value))

    def complete(self, name: str, value: Json, why: str) -> None:
        """Sets a value that the line needs and the user did not give. An INFO finding reports it."""
        self.args[name] = value
        self.inform("completed", name, f"{why}; the plan sets {name} to {value}", f"Set {name} to choose yourself.")

    def copy(self, *fields: str) -> None:
        """Copies the fields that are set to the engine arguments of the same names."""
        for name in fields:
            value = getattr(self.config, name)
            if value is not None:
                self.args[name] = value

    def number(self, name: str) -> int | None:
        """An engine argument that is a whole number."""
        return whole_number(self.args.get(name))

    def nested(self, name: str) -> dict[str, Json]:
        """An engine argument that is an object; empty if there is none."""
        return mapping(self.args.get(name))

    def plan(self) -> EnginePlan:
        return EnginePlan(self.line, dict(self.args), dict(self.env))


def additional_config(config: EndpointConfig) -> dict[str, Json]:
    """`additional_config` without its NeuronConfig sections, which the loader reads as settings of their own."""
    return mapping(config.engine_args.get("additional_config"))


def speculative_keys(config: EndpointConfig) -> dict[str, Json]:
    """The keys of `speculative_config` that have no field. With `method` in it, it is for a method of vLLM's own."""
    return mapping(config.engine_args.get("speculative_config"))


def vllm_arguments(config: EndpointConfig) -> dict[str, Json]:
    """The engine arguments that vLLM gets as they are. The fields complete a method of speculation of vLLM's own."""
    apart = ("additional_config", "speculative_config")
    arguments = {name: value for name, value in config.engine_args.items() if name not in apart}
    if "method" in speculative_keys(config):
        fields = {key: getattr(config, field) for key, field in SPECULATIVE.items()}
        completed = {key: value for key, value in fields.items() if value is not None}
        arguments["speculative_config"] = {**completed, **speculative_keys(config)}
    return arguments


def engines_here(args: Mapping[str, Json]) -> int:
    """The data parallel engines on this machine, at least 1. The nodes of `nnodes` share the ranks of all engines."""
    engines = number(args, "data_parallel_size") or 1
    if (number(args, "nnodes") or 1) > 1:
        return engines
    local = whole_number(args.get("data_parallel_size_local"))
    alone = args.get("data_parallel_rank") is not None
    return (1 if alone else engines) if local is None else max(1, local)


def spell_vllm(draft: PlanDraft) -> None:
    """Writes the arguments that have the same names on every line with vLLM 0.11 or later, and the environment."""
    _spell_arguments(draft)
    for name in LEGACY_ARGUMENTS:
        if name in draft.args:
            del draft.args[name]
            why = f"the vLLM of {draft.line} has no argument {name} and would not start; the plan removes it"
            draft.inform("argument-left-out", draft.config.setting(name), why, "Remove it.")
    draft.additional.update(additional_config(draft.config))
    _spell_environment(draft)
    draft.env.pop(FRAMEWORK_VARIABLE, None)  # only the fork reads it


def spell_fork(draft: PlanDraft) -> None:
    """The same for the fork, which does not read `additional_config`, but `override_neuron_config`."""
    _spell_arguments(draft)
    for key in additional_config(draft.config):
        why = f"{draft.line} does not read additional_config; the plan removes {key[:60]}, which would have no effect"
        draft.warn("additional-config-unread", "additional_config", why, "Remove it.")
    _spell_environment(draft)
    draft.args["device"] = "neuron"


def _spell_arguments(draft: PlanDraft) -> None:
    config, args = draft.config, draft.args
    args["model"] = config.model
    if config.served_model_name:
        args["served_model_name"] = list(config.served_model_name)
    if config.trust_remote_code:
        args["trust_remote_code"] = True
    draft.copy("dtype", "max_num_seqs", "max_model_len", "tensor_parallel_size")
    args.update(vllm_arguments(config))


def _spell_environment(draft: PlanDraft) -> None:
    """Writes the variables that are passed on, and the artifacts' directory if it is on this machine."""
    draft.env.update(draft.config.neuron_env)
    artifacts = draft.config.compiled_artifacts
    if artifacts and not artifacts.startswith("s3://"):
        draft.env["NEURON_COMPILED_ARTIFACTS"] = artifacts
    if draft.config.logical_nc_config is not None:
        draft.env["NEURON_LOGICAL_NC_CONFIG"] = str(draft.config.logical_nc_config)


def pin_grammar_backend(draft: PlanDraft) -> None:
    """Sets `structured_outputs_config.backend` unless it is given. The other keys of the argument are kept.

    With vLLM's default, `auto`, each request is checked for a backend of its own, but the core keeps the backend of its
    first grammar: a request that was checked for another one ends the core. With a fixed backend, a grammar that it
    cannot read gets a 400. The setting is needed with sampling on the device too: artifacts may sample on the CPU.

    The fork's lines do not need it: their vLLM has `guided_decoding_backend` and makes a logits processor for each
    request. Optimum's line does not need it: there every grammar is a 400.
    """
    name = "structured_outputs_config"
    options: Json = draft.args.get(name)
    if options is None:
        draft.args[name] = {"backend": GRAMMAR_BACKEND}
    elif isinstance(options, dict):
        draft.args[name] = {"backend": GRAMMAR_BACKEND, **options}
        if options.get("backend") == "auto":
            why = "auto chooses a backend for each request, but the engine keeps the first one: a request can end it"
            fix = f"Remove backend ({GRAMMAR_BACKEND} is the default), or name one backend."
            draft.warn("grammar-backend-auto", f"{draft.config.setting(name)}.backend", why, fix)


def agree(draft: PlanDraft, name: str) -> None:
    """Makes an engine argument agree with the NeuronConfig key that repeats it, of a multimodal model its text model's.

    If the argument is not set, it takes the key's value. It is an error if they differ: vLLM would schedule for one
    value, and the graph would be compiled for the other.
    """
    key = nxd_key(name)
    text, argument = draft.config.text_neuron_config or {}, draft.args.get(name)
    raw, setting = draft.raw.get(key), draft.config.raw_key(key)
    if raw is None:
        raw, setting = text.get(key), f"{draft.config.setting('text_neuron_config')}.{key}"
    if raw is None:
        return
    if argument is None and type(raw) in (int, str, bool):
        draft.args[name] = raw
        why = f"NeuronConfig's {key} and vLLM's {name} must agree; the plan sets {name} to {raw}"
        draft.inform("completed", setting, why, f"Set {name}.")
    elif argument is not None and argument != raw:
        draft.conflict(setting, raw, name, argument)


def default_length(config: EndpointConfig, facts: ModelFacts | None) -> int:
    """The context length that a plan chooses: room for every prompt and bucket, but not more than the model has."""
    lengths = [*(config.context_encoding_buckets or ()), *(config.token_generation_buckets or ())]
    lengths.append(config.max_context_length or 0)
    for keys in (config.neuron_config, config.text_neuron_config or {}):
        for name in ("context_encoding_buckets", "token_generation_buckets", "max_context_length"):
            value = keys.get(name)
            lengths += whole_numbers(value if isinstance(value, list) else [value])
    length = max(DEFAULT_LENGTH, *lengths)
    limits = (facts.max_position_embeddings, facts.longest) if facts else ()
    return min((length, *filter(None, limits)))


def complete_shape(draft: PlanDraft) -> None:
    """Chooses length, sequences and tensor parallel degree if the user did not.

    The plugin does not start without a length. vLLM's number of sequences is for GPUs, and each takes KV cache. The
    degree follows from the instance's cores and the model's heads.
    """
    config, facts, instance = draft.config, draft.facts, draft.instance
    if draft.args.get("max_model_len") is None:
        why = "no context length is set, and without one the engine does not start"
        draft.complete("max_model_len", default_length(config, facts), why)
    if draft.args.get("max_num_seqs") is None:
        why = "no number of sequences is set, and vLLM's default would compile for hundreds"
        draft.complete("max_num_seqs", DEFAULT_SEQUENCES, why)
    if draft.args.get("tensor_parallel_size") is not None or instance is None:
        return
    heads, weight = (facts.heads, facts.weight_bytes) if facts else (0, None)
    try:
        degree = catalogue.default_degree(instance, heads, weight, config.logical_nc_config)
    except SettingError:
        return  # The instance has no such LNC. A check reports it.
    draft.complete("tensor_parallel_size", degree, f"{instance.name} has enough cores")


def spell_rope(draft: PlanDraft, facts: ModelFacts | None, *, overrides: bool) -> None:
    """Has vLLM read the rotary embedding of a config.json that transformers 5 saved.

    It saves `rope_parameters: {"rope_type", "rope_theta", ...}`. transformers 4 reads `rope_theta` and `rope_scaling`
    only, and takes 10,000 without a word. vLLM 0.16 has a `rope_parameters` of its own, but writes the `rope_theta` of
    transformers' class, a default, into it (vllm/transformers_utils/config.py, patch_rope_parameters). A nested value
    of `hf_overrides` is set after that, a plain one before (vllm/config/model.py). NxD Inference reads the file itself.

    :param facts: of the file itself.
    :param overrides: the line reads `hf_overrides`. If not, the finding is an error.
    """
    config: Mapping[str, Json] = facts.config if facts else {}
    text = text_part(config)
    rope, old, existing = text.get("rope_parameters"), text.get("rope_scaling"), draft.args.get("hf_overrides")
    if not isinstance(rope, dict) or not rope or (existing is not None and not isinstance(existing, dict)):
        return
    kind, theta, scaling = rope.get("rope_type", "default"), rope.get("rope_theta"), mapping(old)
    if theta == text.get("rope_theta") and kind in ("default", scaling.get("rope_type", scaling.get("type"))):
        return  # both spellings
    problem = ""
    if not overrides or text is not config or any(isinstance(value, dict) for value in rope.values()):
        problem = f"its rope_parameters are those of transformers 5, which {draft.line} does not read here"
    elif text.get("rope_theta") is not None:
        problem = "its rope_theta and its rope_parameters differ"
    if problem:
        fix = "Write rope_theta and rope_scaling with the same values, as transformers 4 reads them."
        draft.error("rope-parameters", f"{facts.where if facts else ''}/config.json", problem, fix)
        return
    parameters: dict[str, Json] = {"rope_parameters": {"rope_type": "default", **rope}}
    value: Json = {**parameters, **({} if theta is None else {"rope_theta": theta}), **(existing or {})}
    draft.complete("hf_overrides", value, "transformers 4 does not read the rope_parameters of transformers 5")
