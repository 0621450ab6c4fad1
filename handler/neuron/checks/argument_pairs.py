"""What vLLM rejects of two values together, which no table of single arguments has (vllm/config, 0.16 to 0.29)."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Final

from handler.config.finding import Finding
from handler.config.values import shown
from handler.config.vllm_verdicts import tried_class
from handler.json_value import Json, mapping, whole_number
from handler.neuron.checkpoint.model_facts import text_part
from handler.neuron.checks.check_context import CheckContext, error
from handler.neuron.lines.cpu import CPU, SEQUENCES

# The sizes of which none may be above 1 if the routed experts are returned, by version (vllm/config/vllm.py).
SIZES: Final = ("pipeline_parallel_size", "decode_context_parallel_size", "prefill_context_parallel_size")
SIZES_WITHOUT_ROUTED_EXPERTS: Final = {"0.24.0": SIZES[:1], "0.29.0": SIZES, "0.32.0": SIZES}

LATER: Final = ("0.29.0", "0.32.0")
# Of what no configuration rejects.
WHEN_LOADED: Final = "when the model is loaded"
# Models that vLLM does not compute in float16 (vllm/config/model.py, 0.16 to 0.32; plamo2 until 0.24).
WITHOUT_FLOAT16: Final = ("gemma2", "gemma3", "gemma3_text", "glm4")
# The classes with layers that look up n-grams, and the key with their numbers (vllm/config/engram.py, 0.32).
ENGRAM: Final = {"DeepseekV41ForCausalLM": "engram_layer_ids", "Qwen4ExpFor": "ple_layer_ids"}
EXECUTOR: Final = "distributed_executor_backend"


@dataclass(frozen=True, slots=True)
class Pair:
    """A rule over two or more values.

    :param setting: the argument that is named, or a key of it after a dot.
    :param broken: why vLLM rejects them; None if it does not.
    """

    code: str
    setting: str
    broken: Callable[[CheckContext], str | None]
    fix: str = "Remove it."


def argument_pairs(context: CheckContext) -> Iterator[Finding]:
    yield from broken_pairs(context, PAIRS)


def broken_pairs(context: CheckContext, pairs: tuple[Pair, ...]) -> Iterator[Finding]:
    for pair in pairs:
        why = pair.broken(context)
        if why is not None:
            name, dot, key = pair.setting.partition(".")
            yield error(pair.code, f"{context.setting(name)}{dot}{key}", why, pair.fix)


def _context_degree(context: CheckContext) -> str | None:
    degree, ranks = context.number("decode_context_parallel_size"), context.number("tensor_parallel_size")
    if not degree:
        return "0 is below 1"
    if ranks % degree:
        return f"tensor_parallel_size ({ranks}) must be a multiple of it ({degree})"
    facts = context.facts
    if degree == 1 or context.plugin or facts is None or not facts.kv_heads:
        return None  # the NxDI plugin switches these rules of vLLM off, and its line does not have the feature
    if text_part(facts.config).get("kv_lora_rank"):
        return None  # heads with a compressed cache (MLA) are copied to every rank
    heads, kv_heads = facts.heads, facts.kv_heads
    if ranks < degree * kv_heads:
        return f"{degree} needs {degree * kv_heads} ranks: one for each of {kv_heads} KV heads, {degree} times"
    return (
        f"{degree} does not divide the {heads // kv_heads} heads of a KV head" if heads // kv_heads % degree else None
    )


def _device_ids(context: CheckContext) -> str | None:
    devices: Json = context.draft.args.get("device_ids")
    ids = [str(each).strip() for each in (devices if isinstance(devices, list) else str(devices or "0").split(","))]
    right = len(set(ids)) == len(ids) and all(each.removeprefix("-").isdecimal() for each in ids)
    return None if right else f"{shown(devices)} is not a list of different numbers"


def _reasoning_marks(context: CheckContext) -> str | None:
    reasoning = context.draft.nested("reasoning_config")
    parsed = reasoning.get("reasoning_parser") or context.draft.args.get("reasoning_parser")
    marked = all(reasoning.get(mark) for mark in ("reasoning_start_str", "reasoning_end_str"))
    if context.vllm != "0.24.0" or "reasoning_config" not in context.draft.args or parsed or marked:
        return None  # later versions do without (vllm/config/reasoning.py)
    return "vLLM 0.24.0 needs a reasoning_parser, or both reasoning_start_str and reasoning_end_str"


def _swap_space(context: CheckContext) -> str | None:
    swap, ranks = context.draft.args.get("swap_space"), context.number("tensor_parallel_size")
    host = context.instance.host_gib if context.instance else math.inf
    if not isinstance(swap, int | float) or swap * ranks <= 0.7 * host:
        return None  # vllm/config/cache.py
    return f"{swap:g} GiB for each of {ranks} ranks is more than 70 % of the host's {host} GiB"


def _memory_share(context: CheckContext) -> str | None:
    """Of the versions that have no table of verdicts (vllm/config.py; vllm/config/cache.py)."""
    share, lowest = context.draft.args.get("gpu_memory_utilization"), {"0.9.1": -math.inf, "0.11.0": 0.0}
    if context.vllm not in lowest or not isinstance(share, int | float) or lowest[context.vllm] < share <= 1:
        return None
    return f"{share:g} is no share of the memory"


def _speculation_metrics(context: CheckContext) -> str | None:
    args = context.draft.args
    alone = args.get("per_request_spec_decode_metrics") in ("summary", "detailed") and "speculative_config" not in args
    return "there is no speculative_config" if alone else None


def _event_address(context: CheckContext) -> str | None:
    events = context.draft.nested("kv_events_config")
    if events.get("enable_kv_cache_events") is not True or events.get("publisher") == "null":
        return None
    for key in ("endpoint", "replay_endpoint"):
        address = events.get(key)
        if isinstance(address, str) and "://" not in address:
            return f"{WHEN_LOADED}, {key} {shown(address)} is no address of ZeroMQ"
    return None


def _speculation_length(context: CheckContext) -> str | None:
    speculation = context.draft.nested("speculative_config")
    method = speculation.get("method")
    # Only the config.json of a draft model may have the number (vllm/config/speculative.py).
    alone = context.line.name == CPU.name and method not in (None, "suffix") and not speculation.get("model")
    if context.plugin or not (alone or method in ("ngram", "ngram_gpu")):
        return None
    return None if speculation.get("num_speculative_tokens") else "this method needs num_speculative_tokens"


def _prompt_lookup(context: CheckContext) -> str | None:
    speculation = context.draft.nested("speculative_config")
    if speculation.get("method") not in ("ngram", "ngram_gpu"):
        return None
    least, most = (whole_number(speculation.get(f"prompt_lookup_{end}")) for end in ("min", "max"))
    if least is not None and most is not None and least > most:
        return f"{least} is above prompt_lookup_max ({most})"
    below = any(number is not None and number < 1 for number in (least, most))
    return "it is 1 or more, and so is prompt_lookup_max" if below else None


def _adapters_in_memory(context: CheckContext) -> str | None:
    kept, active = context.number("max_cpu_loras", 0), context.number("max_loras")
    below = context.draft.args.get("enable_lora") is True and 0 < kept < active  # 0 and less are vLLM's own choice
    return f"{kept} is below max_loras ({active})" if below else None


def _optimization_level(context: CheckContext) -> str | None:
    """Of the texts that spell a number. The others are in the table of verdicts."""
    level = str(context.draft.args.get("optimization_level", "")).strip()
    whole = level.isascii() and level.removeprefix("-").isdecimal()
    return f"{shown(level)} is not 0, 1, 2 or 3" if whole and level not in ("0", "1", "2", "3") else None


def _mamba_block(context: CheckContext) -> str | None:
    block, length = context.draft.number("mamba_block_size"), context.draft.number("max_model_len")
    alone = block != length and context.draft.args.get("enable_prefix_caching") is False
    if block is None or (block >= 1 and not alone):
        return None
    return "it is a length of 1 token or more, and one that is not max_model_len goes with prefix caching only"


def _media_adapters(context: CheckContext) -> str | None:
    names = context.facts.architectures if context.facts else ()
    text_only = bool(names) and all(name.endswith("ForCausalLM") for name in names)
    return f"{names[0][:60]} takes text only" if text_only and context.draft.args.get("default_mm_loras") else None


def _encoder_role(context: CheckContext) -> str | None:
    transfer = context.draft.nested("ec_transfer_config")
    return "it needs an ec_role" if transfer.get("ec_connector") and not transfer.get("ec_role") else None


def _connector_role(context: CheckContext) -> str | None:
    transfer = context.draft.nested("kv_transfer_config")
    if transfer.get("kv_connector"):
        return None if transfer.get("kv_role") else "it needs a kv_role"
    alone = context.draft.args.get("kv_transfer_config") is not None and context.vllm in ("0.24.0", *LATER)
    return "no connector is named" if alone else None


def _connector_of_connectors(context: CheckContext) -> str | None:
    transfer = context.draft.nested("kv_transfer_config")
    parts = mapping(transfer.get("kv_connector_extra_config")).get("connectors")
    alone = transfer.get("kv_connector") == "MultiConnector" and not isinstance(parts, list)
    return "it needs kv_connector_extra_config.connectors, a list of the connectors" if alone else None


def _connector_on_cpu(context: CheckContext) -> str | None:
    transfer = context.draft.nested("kv_transfer_config")
    name, on_cpu = transfer.get("kv_connector"), context.line.name == CPU.name
    if not on_cpu or transfer.get("kv_connector_module_path"):
        return None
    if name == "OffloadingConnector":
        return f"{WHEN_LOADED}, this connector wants the memory of a GPU"  # vllm/v1/kv_offload
    early = name == "ExampleConnector" and context.vllm == "0.16.0"
    return "vLLM 0.16.0 loads what it transfers to a GPU: on a CPU, the first prompt ends the engine" if early else None


def _redundant_experts(context: CheckContext) -> str | None:
    redundant = context.draft.nested("eplb_config").get("num_redundant_experts")
    alone = redundant not in (None, 0) and context.draft.args.get("enable_eplb") is not True
    return "it goes with enable_eplb only" if alone else None


def _routed_experts(context: CheckContext) -> str | None:
    sizes = SIZES_WITHOUT_ROUTED_EXPERTS.get(context.vllm or "")
    if context.draft.args.get("enable_return_routed_experts") is not True or sizes is None:
        return None
    above = [name for name in sizes if context.number(name) > 1]
    if context.draft.nested("kv_transfer_config").get("kv_connector"):
        above.append("a KV connector")
    return f"it does not go with {above[0]}" if above else None


def _auxiliary_outputs(context: CheckContext) -> str | None:
    asked = tried_class(context.draft.nested("aux_output_config").get("enable_return_routed_experts"))
    if asked.removeprefix("text:") not in ("true", "1") or context.draft.env.get("VLLM_USE_V2_MODEL_RUNNER") == "1":
        return None
    return "it needs the second model runner, which vLLM does not choose without Triton"  # vllm/config/vllm.py, 0.32


def _class_names(context: CheckContext) -> str | None:
    for value in context.draft.nested("model_class_overrides").values():
        if isinstance(value, str) and value.count(":") != 1:
            return f"{shown(value)} is not of the form module:class"
    return None


def _long_prefill(context: CheckContext) -> str | None:
    threshold, length = context.number("long_prefill_token_threshold", 0), context.draft.number("max_model_len")
    checked = context.number("max_num_partial_prefills") > 1 or context.vllm in LATER
    return f"{threshold} is above max_model_len ({length})" if length and checked and threshold > length else None


def _asynchronous(context: CheckContext) -> str | None:
    args = context.draft.args
    if context.vllm != "0.16.0" or args.get("async_scheduling") is not True:
        return None
    sizes = [context.number(f"{name}_parallel_size") for name in ("pipeline", "tensor", "prefill_context")]
    backend = args.get(EXECUTOR)
    if backend is None and math.prod(sizes) < 1:
        return f"vLLM finds no executor for {math.prod(sizes)} ranks"
    if backend not in (None, "mp", "uni", "external_launcher"):
        return f"the executor {shown(backend)} does not support it"
    mamba = args.get("mamba_cache_mode")
    return None if mamba in (None, "none") else f"it does not go with mamba_cache_mode {shown(mamba)}"


def _prefill_context(context: CheckContext) -> str | None:
    if context.number("prefill_context_parallel_size") <= 1:
        return None
    if context.vllm in LATER:
        return "the model runner does not have prefill context parallelism"
    of_cpu = f"{WHEN_LOADED}, vLLM's attention on a CPU does not have it"  # vllm/v1/worker/cp_utils.py, 0.16 and 0.24
    return of_cpu if context.line is CPU else None


def _max_logprobs(context: CheckContext) -> str | None:
    below = context.vllm in LATER and context.number("max_logprobs") < -1
    return "the least is -1, for no limit" if below else None


def _active_sequences(context: CheckContext) -> str | None:
    ranks = context.number("tensor_parallel_size") * context.number("pipeline_parallel_size")
    active, sequences = context.number("max_num_active_seqs", 0), context.number("max_num_seqs", SEQUENCES * ranks)
    return f"{active} is above max_num_seqs ({sequences})" if active > sequences else None


def _fast_prefill(context: CheckContext) -> str | None:
    method = str(context.draft.nested("speculative_config").get("method"))
    hidden_states = method in ("eagle", "eagle3", "dflash", "dspark") or method.endswith("mtp")
    alone = context.draft.args.get("kv_sharing_fast_prefill") is not True or not hidden_states
    return None if alone else f"it does not go with {method}, which needs the right logits of every token"


def _offloaded_layers(context: CheckContext) -> str | None:
    size, offloaded = context.number("offload_group_size", 0), context.number("offload_num_in_group")
    if size <= 0:
        return None  # vLLM offloads no layers then, or rejects it alone
    if offloaded > size:
        return f"{offloaded} is above offload_group_size ({size})"
    return "offload_prefetch_step is below 1" if context.number("offload_prefetch_step") < 1 else None


def _skipped_layers(context: CheckContext) -> str | None:
    layers: Json = context.draft.args.get("kv_cache_dtype_skip_layers")
    dtype = str(context.draft.args.get("kv_cache_dtype"))
    if not dtype.startswith("turboquant_") or context.vllm not in ("0.24.0", "0.29.0") or not isinstance(layers, list):
        return None  # 0.32 compares them as texts
    wrong = [each for each in layers if not str(each).strip().removeprefix("-").isdecimal()]
    return f"with {dtype}, vLLM {context.vllm} takes numbers of layers only, not {shown(wrong[0])}" if wrong else None


def _engram(context: CheckContext) -> str | None:
    if "engram_config" not in context.draft.args or context.facts is None:
        return None
    text, kinds = text_part(context.facts.config), context.facts.architectures
    layers = any(text.get(key) and kind.startswith(start) for kind in kinds for start, key in ENGRAM.items())
    return None if layers else "the model has no layers of this kind (engram_layer_ids or ple_layer_ids)"


def _float16(context: CheckContext) -> str | None:
    kind, asked = context.facts.model_type if context.facts else "", context.draft.args.get("dtype")
    refused = (*WITHOUT_FLOAT16, *(("plamo2",) if context.vllm in ("0.16.0", "0.24.0") else ()))
    if asked not in ("float16", "half") or kind not in refused:
        return None
    return f"vLLM does not run models of type {kind} in float16, in which they are numerically unstable"


PAIRS: Final = (
    Pair("kv-events-address", "kv_events_config", _event_address, "Give one such as tcp://*:5557."),
    Pair("decode-context-parallel", "decode_context_parallel_size", _context_degree),
    Pair("device-ids", "device_ids", _device_ids, "Give numbers, as in 0,1, or remove it."),
    Pair("reasoning-marks", "reasoning_config", _reasoning_marks, "Give them, or remove it."),
    Pair("swap-space", "swap_space", _swap_space, "Lower it, or remove it: Neuron does not swap."),
    Pair("memory-share", "gpu_memory_utilization", _memory_share, "Give a value above 0, at most 1, or remove it."),
    Pair("metrics-of-speculation", "per_request_spec_decode_metrics", _speculation_metrics),
    Pair("speculation-length", "speculative_config.method", _speculation_length, "Set SM_VLLM_SPEC_TOKENS."),
    Pair("prompt-lookup", "speculative_config.prompt_lookup_min", _prompt_lookup, "Lower it, or remove it."),
    Pair("adapters-in-memory", "max_cpu_loras", _adapters_in_memory, "Raise it, lower max_loras, or remove it."),
    Pair("optimization-level", "optimization_level", _optimization_level, "Give one of them, or remove it."),
    Pair("mamba-block", "mamba_block_size", _mamba_block),
    Pair("adapters-of-media", "default_mm_loras", _media_adapters),
    Pair("encoder-role", "ec_transfer_config.ec_connector", _encoder_role, "Set ec_role with it, or remove it."),
    Pair(
        "connector-role", "kv_transfer_config.kv_connector", _connector_role, "Set both, or remove kv_transfer_config."
    ),
    Pair("connector-parts", "kv_transfer_config.kv_connector", _connector_of_connectors, "Add it."),
    Pair("connector-on-cpu", "kv_transfer_config.kv_connector", _connector_on_cpu, "Use another, or a later vLLM."),
    Pair(
        "redundant-experts", "eplb_config.num_redundant_experts", _redundant_experts, "Set enable_eplb, or remove it."
    ),
    Pair("routed-experts", "enable_return_routed_experts", _routed_experts),
    Pair(
        "auxiliary-outputs",
        "aux_output_config.enable_return_routed_experts",
        _auxiliary_outputs,
        "Set VLLM_USE_V2_MODEL_RUNNER=1 with it, or remove it.",
    ),
    Pair("class-names", "model_class_overrides", _class_names, "Give module:class."),
    Pair("async-scheduling-alone", "async_scheduling", _asynchronous, "Remove one of the two."),
    Pair("offloaded-layers", "offload_num_in_group", _offloaded_layers, "Raise offload_group_size, or remove it."),
    Pair("skipped-layers", "kv_cache_dtype_skip_layers", _skipped_layers, "Give numbers, or remove it."),
    Pair("prefill-context", "prefill_context_parallel_size", _prefill_context),
    Pair("max-logprobs", "max_logprobs", _max_logprobs, "Give -1 or more, or remove it."),
    Pair("active-sequences", "max_num_active_seqs", _active_sequences, "Lower it, or raise max_num_seqs."),
    Pair("fast-prefill", "kv_sharing_fast_prefill", _fast_prefill),  # vllm/config/vllm.py
    Pair("engram-layers", "engram_config", _engram),
    Pair("dtype-of-model", "dtype", _float16, "Use bfloat16 or float32."),
    Pair("long-prefill", "long_prefill_token_threshold", _long_prefill, "Lower it, or remove it."),
)
