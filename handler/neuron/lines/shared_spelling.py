"""What every line spells alike: vLLM's own arguments, and the values that a start needs and nobody gave."""

from __future__ import annotations

from typing import Final

from handler.config.neuron_keys import nxd_key
from handler.errors import SettingError
from handler.json_value import Json
from handler.neuron.hardware import instance_catalogue as catalogue
from handler.neuron.lines.plan_draft import PlanDraft
from handler.neuron.plan_request import conflict

# Long enough for a chat, short enough to compile in minutes; a model that holds less is not asked for more.
DEFAULT_LENGTH: Final = 4096
# The plugin's own default (vllm-project/vllm-neuron, vllm_neuron/platform.py).
DEFAULT_SEQUENCES: Final = 32
# Reads JSON schemas, regular expressions and EBNF. vLLM 0.13, 0.16 and 0.24 require it (requirements/).
GRAMMAR_BACKEND: Final = "xgrammar"
COPIED: Final = ("dtype", "max_num_seqs", "max_model_len", "tensor_parallel_size")
# vLLM 0.7.2 and 0.9.1 have them, 0.11 does not.
LEGACY_ARGUMENTS: Final = ("device", "use_v2_block_manager", "speculative_max_model_len")
# Variables of one line that another would carry along in silence.
FORK_VARIABLES: Final = (
    "VLLM_NEURON_FRAMEWORK",
    "NEURON_CONTEXT_LENGTH_BUCKETS",
    "NEURON_TOKEN_GEN_BUCKETS",
    "NEURON_QUANT_DTYPE",
)


def spell_vllm(draft: PlanDraft) -> None:
    """vLLM's own arguments, by the same name on every line."""
    config, args = draft.config, draft.args
    args["model"] = config.model
    if config.served_model_name:
        args["served_model_name"] = list(config.served_model_name)
    if config.trust_remote_code:
        args["trust_remote_code"] = True
    for name in COPIED:
        value = getattr(config, name)
        if value is not None:
            args[name] = value
    args.update(draft.request.extra)
    draft.additional.update(draft.request.additional)


def pin_grammar_backend(draft: PlanDraft) -> None:
    """`structured_outputs_config.backend`, unless it is given; the other keys of the argument are kept.

    With vLLM's own default, `auto`, each request is checked for a backend of its own, but the core keeps the backend of
    its first grammar: a request that was checked for another one ends the core. With one backend named, what that
    backend cannot read is a 400. It does not matter where the plan samples: compiled artifacts may sample elsewhere.

    Not on the fork's lines: its vLLM has `guided_decoding_backend` and makes a logits processor for each request, of
    that request's own backend. Not on optimum's: which vLLM it has is not known, and 0.9 has no such argument.
    """
    name = "structured_outputs_config"
    given: Json = draft.args.get(name)
    if given is None:
        draft.args[name] = {"backend": GRAMMAR_BACKEND}
    elif isinstance(given, dict):
        draft.args[name] = {"backend": GRAMMAR_BACKEND, **given}
        if given.get("backend") == "auto":
            why = "auto checks each request for a backend of its own, and the engine keeps one: a request can end it"
            fix = f"Leave backend out ({GRAMMAR_BACKEND} is the default), or name one backend."
            draft.warn("grammar-backend-auto", f"{draft.request.setting(name)}.backend", why, fix)


def leave_out_additional(draft: PlanDraft) -> None:
    """The fork reads `override_neuron_config` and nothing of `additional_config`."""
    for key in draft.additional:
        why = f"{draft.line} does not read additional_config; {key[:60]} in it would do nothing, and is left out"
        draft.warn("additional-config-unread", draft.request.setting("additional_config"), why, "Leave it out.")
    draft.additional.clear()


def leave_out_legacy(draft: PlanDraft) -> None:
    """Arguments of the fork's vLLM, which later versions do not have and end on."""
    for name in LEGACY_ARGUMENTS:
        if name in draft.args:
            del draft.args[name]
            why = f"the vLLM of {draft.line} has no argument {name}, and ends on it; the plan leaves it out"
            draft.inform("argument-left-out", draft.request.setting(name), why, "Leave it out.")


def spell_environment(draft: PlanDraft, *, fork: bool = False) -> None:
    """The variables passed on, and the artifacts' directory where it is one on this machine already."""
    for name, value in draft.request.env.items():
        if name in FORK_VARIABLES and not fork:
            if name != "VLLM_NEURON_FRAMEWORK":
                why = f"only the legacy fork reads {name}; {draft.line} would ignore it"
                draft.warn("legacy-variable", name, why, "Use the plain setting of the same meaning instead.")
            continue
        draft.env[name] = value
    artifacts = draft.config.compiled_artifacts
    if artifacts and not artifacts.startswith("s3://"):
        draft.env["NEURON_COMPILED_ARTIFACTS"] = artifacts
    if draft.config.logical_nc_config is not None:
        draft.env["NEURON_LOGICAL_NC_CONFIG"] = str(draft.config.logical_nc_config)


def agree(draft: PlanDraft, name: str) -> None:
    """A NeuronConfig key that repeats an engine argument: taken over where vLLM was not told, an error where they
    differ, since vLLM would schedule for one value and the graph be compiled for the other."""
    key = nxd_key(name)
    value = draft.raw.get(key)
    if value is None:
        return
    given: Json = draft.args.get(name)
    if given is None:
        if type(value) in (int, str, bool):
            draft.args[name] = value
            why = f"NeuronConfig's {key} and vLLM's {name} must agree"
            draft.inform("completed", draft.request.key(key), f"{why}; the plan sets {name} to {value}", f"Set {name}.")
    elif given != value:
        draft.findings.append(conflict(draft.request.key(key), value, draft.request.setting(name), given))


def complete_length(draft: PlanDraft) -> None:
    """`max_model_len`: without one the plugin does not start."""
    if draft.args.get("max_model_len") is not None:
        return
    asked = [*(draft.config.context_encoding_buckets or ()), *(draft.config.token_generation_buckets or ())]
    asked += [draft.config.max_context_length or 0]
    length = max([DEFAULT_LENGTH, *asked])
    limit = draft.facts.max_position_embeddings if draft.facts else None
    if limit is not None and 0 < limit < length:
        length = limit
    draft.complete("max_model_len", length, "nobody gave a context length, and without one it does not start")


def complete_sequences(draft: PlanDraft) -> None:
    """`max_num_seqs`: vLLM's own default is meant for GPUs, and every sequence costs a KV cache."""
    if draft.args.get("max_num_seqs") is None:
        why = "nobody gave a number of sequences, and vLLM's default would compile for hundreds"
        draft.complete("max_num_seqs", DEFAULT_SEQUENCES, why)


def complete_degree(draft: PlanDraft) -> None:
    """`tensor_parallel_size` from the instance's cores and the model's heads."""
    if draft.args.get("tensor_parallel_size") is not None or draft.instance is None:
        return
    heads = draft.facts.heads if draft.facts else 0
    weight = draft.facts.weight_bytes if draft.facts else None
    try:
        degree = catalogue.default_degree(draft.instance, heads, weight, draft.config.logical_nc_config)
    except SettingError:
        return  # The instance has no such LNC: a check says so.
    draft.complete("tensor_parallel_size", degree, f"{draft.instance.name} has cores for it")
