"""What vLLM on a CPU does not start with. Most of it no configuration rejects: it fails once the model is loaded.

Each was seen as a start that failed, or read where the source is named.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Final

from handler.config.finding import Finding
from handler.config.values import shown
from handler.config.vllm_argument_table import registered_names
from handler.neuron.checkpoint.model_facts import stored_quantization, text_part
from handler.neuron.checks.argument_pairs import EXECUTOR, LATER, WHEN_LOADED, Pair, broken_pairs
from handler.neuron.checks.check_context import CheckContext, Rejected, unread, unsupported_model
from handler.neuron.hardware.current_machine import SPACE
from handler.neuron.hardware.instance_catalogue import GIB
from handler.neuron.lines.cpu import ATTENTION, CPU, sequence_bytes, sequence_length
from handler.neuron.lines.plan_draft import engines_here

# How a CPU's ranks are bound to cores (vllm/v1/worker/cpu_worker.py, vllm/utils/ompmultiprocessing.py).
BIND: Final = "VLLM_CPU_OMP_THREADS_BIND"
CORES: Final = re.compile(r"\d+(-\d+)?(,\d+(-\d+)?)*")
# Versions that give each rank's text to libnuma, which has more forms, and fails at a core that is not there.
BOUND_BY_NUMA: Final = ("0.11.0", "0.16.0")
NUMA_FORMS: Final = ("all", "!", "+")
# What vLLM takes on a CPU and does not use (vllm/platforms/cpu.py, 0.16 to 0.32) -> the values that mean nothing.
UNREAD: Final[Rejected] = {
    "async_scheduling": ((None, False), "vLLM switches asynchronous scheduling off on a CPU"),
    "enable_dbo": ((None, False), "vLLM switches dual batches off on a CPU"),
    "cpu_offload_gb": ((None, 0), "the weights are in the CPU's memory"),
}
BACKENDS: Final = ("mp", "uni", "ray", "external_launcher")
# Methods of speculation (vllm/config/speculative.py, 0.29 and 0.32). MTP has many names.
WITH_DRAFT: Final = ("medusa", "mlp_speculator", "draft_model", "eagle", "eagle3", "dflash", "custom_class")
SPECULATION: Final = ("ngram", "ngram_gpu", "suffix", "extract_hidden_states", "dspark", *WITH_DRAFT)
# Versions without speculation on a CPU (v1/worker/cpu_model_runner.py). That of 0.24.0 fails in its first sampling.
WITHOUT_SPECULATION: Final = ("0.11.0", "0.16.0", "0.24.0")
# Architectures of attention alone, without layers that predict several tokens (with which a model drafts for itself).
PLAIN: Final = (
    *("LlamaForCausalLM", "MistralForCausalLM", "MixtralForCausalLM", "Gemma2ForCausalLM", "Phi3ForCausalLM"),
    *("Qwen2ForCausalLM", "Qwen2MoeForCausalLM", "Qwen3ForCausalLM", "Qwen3MoeForCausalLM"),
)
# Methods that vLLM rejects with asynchronous scheduling (vllm/config/vllm.py). It takes those with a draft from the
# draft's own model_type, unless the path names another method (vllm/config/speculative.py).
SYNCHRONOUS: Final = ("ngram", "suffix", "custom_class")
SYNCHRONOUS_DRAFTS: Final = ("medusa", "mlp_speculator")
OTHER_DRAFTS: Final = ("eagle", "dflash", "dspark")
# Methods of quantization that vLLM refuses unless it is told to (model_executor/layers/quantization).
DEPRECATED: Final = {
    "0.16.0": ("tpu_int8", "ptpc_fp8", "fbgemm_fp8", "fp_quant", "experts_int8", "petit_nvfp4"),
    **dict.fromkeys(("0.24.0", *LATER), ("fbgemm_fp8", "fp_quant")),
}
# Stored methods for which vLLM takes one of another name (model_executor/layers/quantization/inc.py, 0.16).
OTHER_NAMES: Final = ("", "auto-round")
# Kinds of quantized weights (the method, or compressed-tensors' format) -> the instruction set of x86 that kernels
# want; None: there are none for a CPU. Each was tried without AVX-512, with weights that vLLM made up.
AVX512, AMX = "avx512f", "amx_tile"
IN_BLOCKS: Final = "fp8 in blocks"
KERNELS: Final[Mapping[str, str | None]] = {
    **dict.fromkeys(("fp8", "modelopt", "nvfp4-pack-quantized")),
    **dict.fromkeys(("auto-round", "pack-quantized"), AVX512),
    IN_BLOCKS: AMX,
}
KERNELS_BY_VERSION: Final[Mapping[str, Mapping[str, str | None]]] = {
    "0.16.0": {
        **dict.fromkeys(("fp8", IN_BLOCKS, "modelopt", "auto-round", "float-quantized", "nvfp4-pack-quantized")),
        **dict.fromkeys(("int-quantized", "pack-quantized"), AVX512),
    },
    "0.24.0": KERNELS,
    "0.29.0": KERNELS,
    "0.32.0": {**KERNELS, "gptq": AVX512},
}
# Model types whose attention vLLM computes from a compressed cache (model_arch_config_convertor.py, 0.16 and 0.24).
LATENT_ATTENTION: Final = (
    *("deepseek_v2", "deepseek_v3", "deepseek_v32", "kimi_k2", "kimi_linear", "glm4_moe_lite", "glm_moe_dsa"),
    *("longcat_flash", "pangu_ultra_moe"),
)
WITHOUT_LATENT_ATTENTION: Final = ("0.16.0", "0.24.0")
MLA_DISABLE: Final = "VLLM_MLA_DISABLE"
# The sizes of heads that vLLM's attention on a CPU has, and the one that 0.16.0 has not (cpu_attn.py). With others it
# fails in the first step, or the core dies.
HEAD_SIZES: Final = (32, 64, 80, 96, 112, 128, 160, 192, 224, 256, 512)
LATER_SIZE: Final = 512

# The version whose loader of plain weights looks for the experts of gpt-oss by a name that they no longer have.
GPT_OSS: Final = ("0.24.0", "gpt_oss")


def cpu_start(context: CheckContext) -> Iterator[Finding]:
    """:yields: what the line of the CPU does not start with."""
    if context.line.name == CPU.name:
        yield from broken_pairs(context, PAIRS)
        yield from unread(context, "unread-on-cpu", UNREAD)
        yield from _latent_attention(context)
        yield from _head_size(context)
        yield from _quantized_weights(context)
        yield from _plain_experts(context)


def _cpu_speculation(context: CheckContext) -> str | None:
    asked = context.vllm in WITHOUT_SPECULATION and context.draft.args.get("speculative_config")
    return f"{WHEN_LOADED}, vLLM {context.vllm} has no speculation on a CPU" if asked else None


def _block(context: CheckContext) -> str | None:
    block, known = context.draft.number("block_size"), context.vllm in ATTENTION
    least = 32 if context.vllm in LATER else 16  # the compressed cache of MLA has blocks of vLLM's own choice
    latent = context.facts is not None and text_part(context.facts.config).get("kv_lora_rank")
    if not known or block is None or block % least == 0 or latent:
        return None
    return f"{WHEN_LOADED}, vLLM's attention on a CPU wants a multiple of {least}, not {block}"


def _ranks_here(context: CheckContext, engines: int = 1) -> int:
    ranks = context.number("tensor_parallel_size") * context.number("pipeline_parallel_size")
    return engines * ranks // max(1, context.number("nnodes"))


def _binding(context: CheckContext) -> str | None:
    text, numa = context.draft.env.get(BIND, "").strip(), context.vllm in BOUND_BY_NUMA
    if text in ("", "auto", "nobind"):
        return None
    engines = engines_here(context.draft.args)
    parts, ranks = text.split("|"), _ranks_here(context, engines)
    plain = [part for part in parts[:ranks] if not (numa and part.startswith(NUMA_FORMS))]
    if any(not CORES.fullmatch(part) for part in plain):
        return f"{shown(text)} is no list of cores"
    if len(parts) < ranks:
        return f"it has cores for {len(parts)} of {ranks} ranks"
    if len(parts) > ranks and engines == 1 and not numa:
        return f"it has {len(parts)} parts, and there are {ranks} ranks, each with one"
    last = max((int(number) for part in plain for number in re.split("[-,]", part)), default=0)
    there = context.draft.cpu.cores if numa and context.draft.cpu else 0
    return f"it names core {last}, and this machine's last is {there - 1}" if there and last >= there else None


def _nodes_of_ranks(context: CheckContext, engines: int = 1) -> str | None:
    ranks = _ranks_here(context, engines)
    env, nodes = context.draft.env, context.draft.cpu.nodes if context.draft.cpu else 0
    bound = env.get(BIND, "auto").strip() == "auto" and env.get("VLLM_CPU_SIM_MULTI_NUMA", "0") == "0"
    if not bound or context.vllm not in ("0.11.0", *ATTENTION) or not nodes:
        return None
    why = f"vLLM binds each of {ranks} ranks here to a NUMA node of its own, and this machine has {nodes}"
    return why if ranks > nodes else None


def _nodes_of_engines(context: CheckContext) -> str | None:
    """Each data parallel engine gets nodes of its own (vllm/v1/engine/utils.py, set_device_control_env_var)."""
    return _nodes_of_ranks(context, engines_here(context.draft.args)) if _nodes_of_ranks(context) is None else None


def _one_sequence(context: CheckContext) -> str | None:
    draft, facts, space = context.draft, context.facts, context.draft.env.get(SPACE, "").strip()
    own = draft.args.get("kv_cache_dtype") in (None, "auto")
    if not own or facts is None or not space.isdecimal() or not set(facts.architectures[:1]) & set(PLAIN):
        return None
    text = text_part(facts.config)
    if text.get("sliding_window") and text.get("use_sliding_window") is not False:
        return None  # such layers keep less
    ranks = max(1, context.number("tensor_parallel_size") * context.number("pipeline_parallel_size"))
    needed, length = sequence_bytes(draft, facts) / ranks / GIB, sequence_length(draft, facts)
    why = f"one sequence of {length} tokens takes {needed:.1f} GiB of each rank's cache, and it has {space}"
    return why if needed > int(space) else None


def _fp8_cache(context: CheckContext) -> str | None:
    asked, cpu = str(context.draft.args.get("kv_cache_dtype")).startswith("fp8"), context.draft.cpu
    if not asked or context.vllm not in ATTENTION[1:] or cpu is None:
        return None  # 0.16.0 keeps the model's own type
    return f"{WHEN_LOADED}, vLLM wants AVX-512 or AMX for it, which this CPU has not" if cpu.lacks("fp8") else None


def _kv_offloading(context: CheckContext) -> str | None:
    size, other = context.draft.args.get("kv_offloading_size"), context.draft.args.get("kv_offloading_backend")
    alone = size and other != "lmcache"
    return f"{WHEN_LOADED}, vLLM's own offloading wants the memory of a GPU" if alone else None


def _routed_experts(context: CheckContext) -> str | None:
    asked = context.draft.args.get("enable_return_routed_experts") is True
    alone = asked and context.facts is not None and not context.facts.experts
    return f"{WHEN_LOADED}, vLLM asks for the model's experts, and it has none" if alone else None


def _mamba_mode(context: CheckContext) -> str | None:
    args, names = context.draft.args, context.facts.architectures if context.facts else ()
    aligned = args.get("mamba_cache_mode") == "align" and args.get("enable_prefix_caching") is not False
    if not aligned or not names or names[0] not in PLAIN:
        return None
    return f"{WHEN_LOADED}, vLLM asks for Mamba layers, and {names[0]} has none"


def _executor(context: CheckContext) -> str | None:
    backend = context.draft.args.get(EXECUTOR)
    if not isinstance(backend, str) or backend in BACKENDS or "." in backend:
        return None  # another text is a class of a module
    return f"{shown(backend)} is no executor of vLLM, and no class (module.Class)"


def _deprecated(context: CheckContext) -> str | None:
    stored = (stored_quantization(context.facts.config) if context.facts else None) or {}
    method = context.draft.args.get("quantization") or stored.get("quant_method")
    old = method in DEPRECATED.get(context.vllm or "", ())
    why = f"vLLM {context.vllm} refuses {method}, which later versions do not have"
    return why if old and context.draft.args.get("allow_deprecated_quantization") is not True else None


def _speculation_method(context: CheckContext) -> str | None:
    speculation = context.draft.nested("speculative_config")
    method = str(speculation.get("method"))
    if "method" not in speculation or context.vllm not in LATER:
        return None
    if not method.endswith("mtp") and method not in SPECULATION:
        return f"vLLM {context.vllm} has no method {shown(method)}"
    if not speculation.get("model") and method in WITH_DRAFT:
        return f"{method} needs a draft model"
    where, drafter = context.config.model, context.facts
    if speculation.get("model"):
        where, drafter = str(speculation["model"]), context.draft_model
    names = drafter.architectures if drafter and "hf_overrides" not in context.draft.args else ()
    # By such a path vLLM takes the drafter for an EAGLE draft, whatever the method is.
    alone = method.endswith("mtp") and "eagle" not in where.lower() and names and names[0] in PLAIN
    return f"{names[0]} has no layers for {shown(method)}" if alone else None


def _asynchronous_speculation(context: CheckContext) -> str | None:
    speculation, args = context.draft.nested("speculative_config"), context.draft.args
    if context.vllm not in LATER or args.get("async_scheduling") is not True or "speculative_config" not in args:
        return None
    if speculation.get("disable_padded_drafter_batch") is True:
        return "it does not go with disable_padded_drafter_batch"
    method, where = speculation.get("method"), str(speculation.get("model")).lower()
    drafted = context.draft_model is not None and context.draft_model.model_type == method in SYNCHRONOUS_DRAFTS
    if method in SYNCHRONOUS or (drafted and not any(name in where for name in OTHER_DRAFTS)):
        return f"it does not go with speculation by {method}"
    return None


def _latent_attention(context: CheckContext) -> Iterator[Finding]:
    """Earlier builds of vLLM for a CPU have no kernels for it, and fail once the model is loaded (platforms/cpu.py)."""
    if context.facts is None or context.vllm not in WITHOUT_LATENT_ATTENTION:
        return
    text, disabled = text_part(context.facts.config), context.draft.env.get(MLA_DISABLE, "0").strip()
    if text.get("model_type") in LATENT_ATTENTION and text.get("kv_lora_rank") is not None and disabled == "0":
        why = f"vLLM {context.vllm} has no multi-head latent attention (MLA) on a CPU"
        yield unsupported_model(context, why, "Use another model.")


def _head_size(context: CheckContext) -> Iterator[Finding]:
    """Heads that vLLM's attention on a CPU cannot compute. Latent attention has heads of other sizes."""
    facts = context.facts
    if facts is None or context.vllm not in ATTENTION or not facts.head_dim:
        return
    absent = facts.head_dim not in HEAD_SIZES or (facts.head_dim == LATER_SIZE and context.vllm == ATTENTION[0])
    if absent and text_part(facts.config).get("kv_lora_rank") is None:
        why = f"vLLM {context.vllm} computes no attention with heads of {facts.head_dim} numbers on a CPU"
        yield unsupported_model(context, why, "Use another model.")


def _quantized_weights(context: CheckContext) -> Iterator[Finding]:
    """Weights whose quantization the CPU cannot compute. `file_findings` has what is quantized while it is loaded."""
    facts, cpu, vllm = context.facts, context.draft.cpu, context.vllm or ""
    if facts is None or "hf_overrides" in context.draft.args:
        return
    stored = stored_quantization(facts.config) or {}
    kind = str(stored.get("format" if stored.get("quant_method") == "compressed-tensors" else "quant_method"))
    kind = IN_BLOCKS if kind == "fp8" and stored.get("weight_block_size") else kind
    known, method = registered_names(vllm, "quantizations"), stored.get("quant_method")
    if known and isinstance(method, str) and _vllms_name(method) not in (*known, *OTHER_NAMES):
        why = f"vLLM {vllm} has no quantization {shown(method)}, by which the weights are quantized"
        yield unsupported_model(context, why, "Use weights that are not quantized.")
    feature = KERNELS_BY_VERSION.get(vllm, {}).get(kind, "")
    if feature is None:
        why = f"vLLM {vllm} computes no weights of the kind {shown(kind)} on a CPU"
        yield unsupported_model(context, why, "Use weights that are not quantized.")
    elif feature and cpu is not None and "avx2" in cpu.flags and feature not in cpu.flags:
        name = "AVX-512" if feature == AVX512 else "AMX"
        why = f"vLLM {vllm} computes weights of the kind {shown(kind)} with {name} only, which this CPU has not"
        yield unsupported_model(context, why, "Use another machine, or weights that are not quantized.")


def _vllms_name(method: str) -> str:
    """A stored method as vLLM reads it (transformers_utils/model_arch_config_convertor.py)."""
    name = method.lower().replace("compressed_tensors", "compressed-tensors")
    return "modelopt" if "modelopt" in name else name


def _plain_experts(context: CheckContext) -> Iterator[Finding]:
    facts, args = context.facts, context.draft.args
    if facts is None or (context.vllm, facts.model_type) != GPT_OSS or "hf_overrides" in args:
        return
    if stored_quantization(facts.config) is None and args.get("load_format") != "dummy":
        why = f"vLLM {context.vllm} loads no experts of gpt-oss that are not quantized"
        yield unsupported_model(context, why, "Use a later vLLM.")


PAIRS: Final = (
    Pair("cpu-speculation", "speculative_config", _cpu_speculation, "Remove it, or use a later vLLM."),
    Pair("cpu-kv-offloading", "kv_offloading_size", _kv_offloading),
    Pair("routed-experts", "enable_return_routed_experts", _routed_experts),
    Pair("mamba-mode", "mamba_cache_mode", _mamba_mode),
    Pair("cpu-nodes", "tensor_parallel_size", _nodes_of_ranks, f"Lower it, or set {BIND} to nobind."),
    Pair("cpu-binding", BIND, _binding, "Give nobind, auto, or cores such as 0-3, with | between the ranks."),
    Pair("cpu-nodes", "data_parallel_size", _nodes_of_engines, f"Lower it, or set {BIND} to nobind."),
    Pair("cpu-cache", SPACE, _one_sequence, "Raise it, or lower max_model_len."),
    Pair("cpu-block", "block_size", _block, "Give 32, 64 or 128, or remove it."),
    Pair("cpu-fp8-cache", "kv_cache_dtype", _fp8_cache),
    Pair("speculation-method", "speculative_config.method", _speculation_method, "Use another method, or remove it."),
    Pair("deprecated-quantization", "quantization", _deprecated, "Remove it, or set allow_deprecated_quantization."),
    Pair("unknown-executor", EXECUTOR, _executor, f"Use {', '.join(BACKENDS)}."),
    Pair("async-scheduling-alone", "async_scheduling", _asynchronous_speculation, "Remove one of the two."),
)
