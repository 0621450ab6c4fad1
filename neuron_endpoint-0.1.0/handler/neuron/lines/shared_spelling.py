"""Parts of a plan that lines share: vLLM's own arguments, and defaults for values that a start needs."""

from __future__ import annotations

from typing import Final

from handler.config.dialects.neuron_variables import FRAMEWORK_VARIABLE
from handler.config.neuron_keys import nxd_key
from handler.errors import SettingError
from handler.json_value import Json
from handler.neuron.hardware import instance_catalogue as catalogue
from handler.neuron.lines.plan_draft import PlanDraft
from handler.neuron.plan_request import conflict

# Long enough for a chat and short enough to compile in minutes. A model with a shorter context gets less.
DEFAULT_LENGTH: Final = 4096
# The plugin's own default (vllm-project/vllm-neuron, vllm_neuron/platform.py).
DEFAULT_SEQUENCES: Final = 32
# Tokens in a chunk of chunked prefill.
DEFAULT_CHUNK: Final = 256
# Reads JSON schemas, regular expressions and EBNF. vLLM 0.13, 0.16 and 0.24 require it (requirements/).
GRAMMAR_BACKEND: Final = "xgrammar"
COPIED: Final = ("dtype", "max_num_seqs", "max_model_len", "tensor_parallel_size")
# Arguments that vLLM 0.7.2 and 0.9.1 have and 0.11 does not.
LEGACY_ARGUMENTS: Final = ("device", "use_v2_block_manager", "speculative_max_model_len")


def spell_vllm(draft: PlanDraft) -> None:
    """Writes vLLM's own arguments, which have the same names on every line."""
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
    """Sets `structured_outputs_config.backend` unless it is given. The other keys of the argument are kept.

    With vLLM's default, `auto`, each request is checked for a backend of its own, but the core keeps the backend of its
    first grammar: a request that was checked for another one ends the core. With a fixed backend, a grammar that it
    cannot read gets a 400. The setting is needed with sampling on the device too: artifacts may sample on the CPU.

    The fork's lines do not need it: their vLLM has `guided_decoding_backend` and makes a logits processor for each
    request. Optimum's line does not need it: there every grammar is a 400.
    """
    name = "structured_outputs_config"
    given: Json = draft.args.get(name)
    if given is None:
        draft.args[name] = {"backend": GRAMMAR_BACKEND}
    elif isinstance(given, dict):
        draft.args[name] = {"backend": GRAMMAR_BACKEND, **given}
        if given.get("backend") == "auto":
            why = "auto chooses a backend for each request, but the engine keeps the first one: a request can end it"
            fix = f"Remove backend ({GRAMMAR_BACKEND} is the default), or name one backend."
            draft.warn("grammar-backend-auto", f"{draft.request.setting(name)}.backend", why, fix)


def remove_additional(draft: PlanDraft) -> None:
    """Removes `additional_config`, which the fork does not read. It reads `override_neuron_config`."""
    for key in draft.additional:
        why = f"{draft.line} does not read additional_config; the plan removes {key[:60]}, which would have no effect"
        draft.warn("additional-config-unread", draft.request.setting("additional_config"), why, "Remove it.")
    draft.additional.clear()


def remove_legacy(draft: PlanDraft) -> None:
    """Removes arguments of the fork's vLLM, on which later versions fail."""
    for name in LEGACY_ARGUMENTS:
        if name in draft.args:
            del draft.args[name]
            why = f"the vLLM of {draft.line} has no argument {name} and would not start; the plan removes it"
            draft.inform("argument-left-out", draft.request.setting(name), why, "Remove it.")


def spell_environment(draft: PlanDraft, *, fork: bool = False) -> None:
    """Writes the variables that are passed on, and the artifacts' directory if it is on this machine."""
    for name, value in draft.request.env.items():
        if fork or name != FRAMEWORK_VARIABLE:  # only the fork reads it
            draft.env[name] = value
    artifacts = draft.config.compiled_artifacts
    if artifacts and not artifacts.startswith("s3://"):
        draft.env["NEURON_COMPILED_ARTIFACTS"] = artifacts
    if draft.config.logical_nc_config is not None:
        draft.env["NEURON_LOGICAL_NC_CONFIG"] = str(draft.config.logical_nc_config)


def agree(draft: PlanDraft, name: str) -> None:
    """Makes an engine argument agree with the NeuronConfig key that repeats it.

    If the argument is not set, it takes the key's value. It is an error if they differ: vLLM would schedule for one
    value, and the graph would be compiled for the other.
    """
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
    """Sets `max_model_len` if the user did not. The plugin does not start without one."""
    if draft.args.get("max_model_len") is not None:
        return
    lengths = [*(draft.config.context_encoding_buckets or ()), *(draft.config.token_generation_buckets or ())]
    lengths += [draft.config.max_context_length or 0]
    length = max([DEFAULT_LENGTH, *lengths])
    limit = draft.facts.max_position_embeddings if draft.facts else None
    if limit is not None and 0 < limit < length:
        length = limit
    draft.complete("max_model_len", length, "no context length is set, and without one the engine does not start")


def complete_sequences(draft: PlanDraft) -> None:
    """Sets `max_num_seqs` if the user did not. vLLM's default is for GPUs, and every sequence takes KV cache."""
    if draft.args.get("max_num_seqs") is None:
        why = "no number of sequences is set, and vLLM's default would compile for hundreds"
        draft.complete("max_num_seqs", DEFAULT_SEQUENCES, why)


def complete_degree(draft: PlanDraft) -> None:
    """Sets `tensor_parallel_size` from the instance's cores and the model's heads, if the user did not."""
    if draft.args.get("tensor_parallel_size") is not None or draft.instance is None:
        return
    heads = draft.facts.heads if draft.facts else 0
    weight = draft.facts.weight_bytes if draft.facts else None
    try:
        degree = catalogue.default_degree(draft.instance, heads, weight, draft.config.logical_nc_config)
    except SettingError:
        return  # The instance has no such LNC. A check reports it.
    draft.complete("tensor_parallel_size", degree, f"{draft.instance.name} has enough cores")
