"""Checks what the native plugin rejects at a start: models, arguments, degrees and variables.

Source: vllm-neuron 0.24.0.1.1.0, vllm_neuron/vllm/platform.py (check_and_update_config and its validators) and
vllm_neuron/model/registry.py; vLLM Neuron, "Features" (what is not supported).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping
from typing import Final

from handler.config.finding import Finding
from handler.json_value import Json, mapping, whole_numbers
from handler.neuron.checkpoint.model_facts import stored_quantization
from handler.neuron.checks.check_context import CheckContext, error, warning
from handler.neuron.engine_plan import CPU_COMPILE, TARGET, compiles_only
from handler.neuron.lines.blocks import NATIVE_BLOCK
from handler.neuron.lines.line import ConfigKeys
from handler.neuron.lines.native.native_lines import (
    BUFFER,
    CONVERTED,
    INTERLEAVE,
    NIXL,
    OLDER_INTERLEAVE,
    QUANTIZATION,
    TRANSFER,
    TRANSFERS,
    VISION_SECTION,
    VISION_SECTIONS,
    conversions,
)
from handler.neuron.lines.native.native_prefill import TOKENS
from handler.neuron.lines.native.native_sampling import pools
from handler.neuron.memory.memory_shape import CAP_VARIABLE, MINIMUM_VARIABLE
from handler.neuron.neuron_config.keys import DEGREES

LATER: Final = "Compile on the Neuron instance: `compile --on` with its type."


def cpu_compile(context: CheckContext) -> Iterator[Finding]:
    """A compile on a host without Neuron devices (AWS Neuron documentation, vLLM Neuron, "CPU compilation").

    Graphs are compiled and not run, the target must be named, and speculation is not supported.
    """
    env = context.config.neuron_env
    if not compiles_only(env):
        return
    if context.line.keys is not ConfigKeys.NATIVE:
        why = f"{context.line.name} compiles on Neuron devices only, and would ignore it"
        yield error("cpu-compile-line", CPU_COMPILE, why, "Set ENDPOINT_LINE to native-0.29, or remove it.")
        return
    if not context.draft.env.get(TARGET):
        why = "the compiler needs a target, and no instance is named"
        yield error("cpu-compile-target", CPU_COMPILE, why, "Set ENDPOINT_INSTANCE, for example to ml.trn2.48xlarge.")
    if "speculative_config" in context.draft.args:
        why = "a compile without Neuron devices has no speculation: the draft's graphs would be missing"
        yield error("cpu-compile-speculation", "speculation", why, LATER)
    if not context.config.artifact_store:
        why = "what is compiled here would be lost"
        yield error("cpu-compile-store", CPU_COMPILE, why, "Set ENDPOINT_ARTIFACT_STORE.")
    why = "this container compiles, and serves no request"
    yield warning("cpu-compile", CPU_COMPILE, why, "Remove it from the settings of an endpoint.")


CPU_COMPILES: Final = (cpu_compile,)


# Methods of a checkpoint's quantization_config that vLLM accepts on Neuron.
QUANTIZATIONS: Final = ("neuron_quant", "compressed-tensors", "modelopt")
# Spellings of the plain setting that mean a checkpoint's own.
FROM_CHECKPOINT: Final = ("", "fp8", "f8e4m3", "int8", "s8", *QUANTIZATIONS)
# vLLM Neuron, "KV cache quantization".
CACHE_DTYPES: Final = (None, "auto", "bfloat16", "float16", "float32", "fp8", "fp8_e4m3")
BACKENDS: Final = ("neuron_native", "neuron", "xla")
CONNECTORS: Final = (*NIXL, "NeuronDecodeBenchConnector")
# Tokens of the encoder's attention block, if it is not given.
VISION_BLOCK: Final = 2048
LANGUAGE_ONLY: Final = "mm_language_model_only"
SAMPLING, SAMPLING_DEGREE = "on_device_sampling_config", "sampling_dp_degree"
ENVIRON_CHECK: Final = "fail_on_environ_validation"
V2_RUNNER: Final = "VLLM_USE_V2_MODEL_RUNNER"
# Directories of the compiler's cache (AWS Neuron documentation, vLLM Neuron, "Compilation cache").
CACHE_ROOT: Final = "NEURON_LIBTORCH_CACHE_ROOT"
CACHES: Final = (CACHE_ROOT, "NEURON_LIBTORCH_REMOTE_CACHE")
# Variables that version 0.21 reads with one prefix, and later versions with the other.
OLD, NEW = "VLLM_NEURON_", "NEURON_LIBTORCH_"
RENAMED: Final = (
    "COMPILATION_TIMEOUT",
    "PARALLEL_COMPILE_WORKERS",
    "DISABLE_COMPILE_CACHE",
    "DISABLE_GRAPH_CAPTURE_BACKEND",
    "ASSERT_CACHE_HIT",
)


def _above(limit: float) -> Callable[[Json], bool]:
    return lambda value: isinstance(value, int | float) and value > limit


def _given(value: Json) -> bool:
    return value not in (None, False)


# Argument -> whether the value is rejected, and why.
REJECTED: Final[Mapping[str, tuple[Callable[[Json], bool], str]]] = {
    "scheduling_policy": (lambda value: value not in (None, "fcfs"), "the plugin's scheduler has fcfs only"),
    "scheduler_cls": (_given, "the plugin's own scheduler is needed: it never mixes prefill and decode"),
    "pipeline_parallel_size": (_above(1), "the plugin does not have pipeline parallelism"),
    "enable_sleep_mode": (_given, "the plugin does not have sleep mode"),
    "cpu_offload_gb": (_above(0), "the plugin does not move weights to the host"),
    "kv_offloading_size": (_given, "the plugin does not move the KV cache to the host"),
    "convert": (lambda value: value == "classify", "the plugin has embeddings, and no classification"),
    "calculate_kv_scales": (_given, "the plugin does not compute scales of the KV cache"),
    "kv_cache_dtype": (lambda value: value not in CACHE_DTYPES, "the plugin's FP8 cache is fp8 or fp8_e4m3"),
}


def arguments(context: CheckContext) -> Iterator[Finding]:
    """Arguments of vLLM that the plugin does not have."""
    for name, (rejected, why) in REJECTED.items():
        value = context.draft.args.get(name)
        if rejected(value):
            yield error("not-on-native", name, f"{name} is {str(value)[:40]}: {why}", "Remove it.")
    if context.draft.args.get(ENVIRON_CHECK) and context.line.name == "native-0.29":
        why = "vLLM does not know the plugin's own variables (VLLM_NEURON_BACKEND), and does not start"
        yield error("not-on-native", ENVIRON_CHECK, why, "Remove it.")
    if pools(context.draft.args) and str(context.draft.args.get("kv_cache_dtype")).startswith("fp8"):
        why = "the plugin makes embeddings without an FP8 KV cache"
        yield error("not-on-native", "kv_cache_dtype", why, "Remove it.")
    transfer, setting = context.draft.nested(TRANSFERS), context.setting(TRANSFERS)
    connector, device = transfer.get("kv_connector"), transfer.get(BUFFER)
    if connector is None and context.draft.args.get(TRANSFERS) is not None:
        why = "vLLM does not start without a connector"
        yield error("not-on-native", f"{setting}.kv_connector", why, f"Use {CONNECTORS[0]}.")
    if connector is not None and connector not in CONNECTORS:
        why = f"{str(connector)[:60]} does not run on Neuron, where the cache moves between devices only"
        yield error("not-on-native", f"{setting}.kv_connector", why, f"Use {CONNECTORS[0]}.")
    if connector in NIXL and device != TRANSFER[BUFFER]:
        why = f"{connector} moves the cache between devices only, which the plugin calls cuda, not {str(device)[:40]}"
        yield error("not-on-native", f"{setting}.{BUFFER}", why, "Set it to cuda, or remove it.")


def degrees(context: CheckContext) -> Iterator[Finding]:
    """Expert parallelism has a switch of vLLM's. The other degrees are of a decode server with several engines."""
    given = {key: value for key in DEGREES if isinstance(value := context.draft.override.get(key), int)}
    args = context.draft.args
    for key, value in given.items():
        if value < 1:
            yield error("degree", context.key(key), f"{value} is below 1", "Give 1 or more, or remove it.")
    experts = given.pop("ep_degree", 1)
    tensor, engines = (context.draft.number(f"{kind}_parallel_size") or 1 for kind in ("tensor", "data"))
    ranks = tensor * engines
    if experts > 1 and args.get("enable_expert_parallel") is not True:
        why = "expert parallelism is off"
        yield error("degree", context.key("ep_degree"), why, "Set enable_expert_parallel to true, or remove it.")
    elif experts > 1 and ranks % experts:
        why = f"ep_degree {experts} does not divide the {ranks} ranks (tensor_parallel_size x data_parallel_size)"
        yield error("degree", context.key("ep_degree"), why, "Use a degree that divides them, or remove it.")
    if args.get("enable_expert_parallel") is True and context.facts is not None and not context.facts.experts:
        why = "the model has no experts, and vLLM does not start with expert parallelism"
        yield error("degree", "enable_expert_parallel", why, "Remove it.")
    role = context.draft.nested(TRANSFERS).get("kv_role")
    for key, value in given.items():
        if value > 1 and (role not in ("kv_consumer", "kv_both") or engines < 2):
            why = f"{key} works on a decode server with a data_parallel_size of 2 or more"
            yield error("degree", context.key(key), why, "Set disaggregation to decode and data_parallel_size, or 1.")
        elif value > 1 and engines % value:
            why = f"{key} {value} does not divide the {engines} engines (data_parallel_size)"
            yield error("degree", context.key(key), why, "Use a degree that divides them, or remove it.")
    text = str(mapping(context.draft.override.get(SAMPLING)).get(SAMPLING_DEGREE, 1)).strip()  # the plugin reads texts
    sampling = int(text) if text.isascii() and text.isdigit() and len(text) < 8 else 1
    if sampling > 1 and tensor % sampling:
        why = f"{SAMPLING_DEGREE} {sampling} does not divide the {tensor} ranks of tensor_parallel_size"
        yield error("degree", f"{context.key(SAMPLING)}.{SAMPLING_DEGREE}", why, "Use a divisor, or remove it.")


def decode_context_parallel(context: CheckContext) -> Iterator[Finding]:
    """The KV cache of one sequence over several ranks. What vLLM itself asks of it is in `argument_pairs`."""
    draft, name = context.draft, "decode_context_parallel_size"
    degree = draft.number(name)
    if degree is None or degree <= 1:
        return
    transfer = draft.nested(TRANSFERS)
    connector = transfer.get("kv_connector", CONNECTORS[0])
    block = draft.number("block_size") or NATIVE_BLOCK
    step = min(draft.number(TOKENS) or 0, draft.number("max_model_len") or 0)
    stride, threshold = degree * block, draft.number("long_prefill_token_threshold") or 0
    broken = {
        f"it needs the connector {CONNECTORS[0]}": connector != CONNECTORS[0],
        "it does not work with an FP8 cache": str(draft.args.get("kv_cache_dtype", "auto")).startswith("fp8"),
        "it does not work with speculation": "speculative_config" in draft.args,
        f"the longest prefill step and long_prefill_token_threshold must be multiples of {stride} (with the block)": (
            bool(step % stride or threshold % stride)
        ),
    }
    for why in (why for why, is_broken in broken.items() if is_broken):
        yield error("decode-context-parallel", name, f"{name} is {degree}: {why}", "Remove it.")
    for key in (INTERLEAVE, OLDER_INTERLEAVE) if transfer else ():
        size = draft.number(key)
        if size is not None and size != block and not (key == OLDER_INTERLEAVE and size <= 1):  # vLLM reads none then
            why = f"{name} is {degree}: with a connector the interleave size must be the block size ({block})"
            yield error("decode-context-parallel", key, why, f"Set it to {block}, or remove it.")


def variables(context: CheckContext) -> Iterator[Finding]:
    """Variables that a start fails on, or that this version does not read."""
    env = context.draft.env
    if env.get(V2_RUNNER, "").strip().lower() in ("1", "true", "yes", "on"):
        yield error("not-on-native", V2_RUNNER, "the plugin has a model runner of its own", "Remove it.")
    backend = env.get("VLLM_NEURON_BACKEND")
    if backend is not None and backend.lower() not in BACKENDS:
        why = f"'{backend[:40]}' is not a backend of the plugin, which then silently uses another"
        yield error("unknown-backend", "VLLM_NEURON_BACKEND", why, f"Use {' or '.join(BACKENDS)}.")
    for name, least, most in ((CAP_VARIABLE, 0.0, 1.0), (MINIMUM_VARIABLE, -math.inf, math.inf)):
        number = _number(env.get(name, "1"))
        if number is None or not math.isfinite(number) or not least < number <= most:
            why = f"'{env[name][:40]}' is not a number{' above 0, and 1 at most' if name == CAP_VARIABLE else ''}"
            yield error("not-a-number", name, why, "Correct it, or remove it.")
    for name in (name for name in CACHES if "://" in env.get(name, "")):
        why = f"{env[name][:60]} is no directory, and the compiler would write into one of that name on this machine"
        yield error("cache-directory", name, why, "Give a directory (NFS or FSx). For S3, use ENDPOINT_ARTIFACT_STORE.")
    if context.config.artifact_store and CACHE_ROOT in env:
        why = "the store keeps what is compiled below VLLM_CACHE_ROOT, and would find nothing there after the compile"
        yield error("cache-directory", CACHE_ROOT, why, "Remove it, or ENDPOINT_ARTIFACT_STORE.")
    read, unread = (OLD, NEW) if context.line.name == "native-0.21" else (NEW, OLD)
    for name in RENAMED:
        if unread + name in env:
            why = f"{context.line.name} does not read it"
            yield warning("variable-unread", unread + name, why, f"Use {read}{name}.")


def _number(text: str) -> float | None:
    try:
        return float(text)
    except ValueError:
        return None


def quantization(context: CheckContext) -> Iterator[Finding]:
    """The checkpoint's own quantization, as vLLM and the plugin read it."""
    chosen = context.draft.override.get(QUANTIZATION)
    plain = (context.config.quantization or "").lower()
    for setting, text, known in (
        ("quantization", plain, (*FROM_CHECKPOINT, *CONVERTED, "bfloat16")),
        (context.key(QUANTIZATION), chosen, (None, *CONVERTED)),
    ):
        if text not in known:
            why = f"the plugin has no quantization {str(text)[:40]}"
            yield error("not-on-native", setting, why, "Use mxfp4, mxfp8 or bf16, or remove it.")
    names = context.facts.architectures if context.facts else ()
    had = conversions(context.line.name, names)
    if chosen in CONVERTED and chosen != "mxfp4" and chosen not in had:
        why = f"the plugin does not convert weights of {names[0][:60]} to {chosen}, and starts without it or not at all"
        yield error("model-quantization", context.key(QUANTIZATION), why, f"Use {' or '.join(had)}, or remove it.")
    if chosen == "mxfp4":
        other = context.instance is not None and context.instance.platform != "trn3"
        model = context.facts is not None and context.facts.model_type != "gpt_oss"
        if other or model:
            why = "MXFP4 weights work for gpt-oss on trn3 only; the worker rejects them otherwise"
            yield error("mxfp4", context.key(QUANTIZATION), why, "Remove quantization.")
    overrides = context.draft.args.get("hf_overrides")
    own = stored_quantization(context.facts.config) if context.facts else None
    if own is None or (isinstance(overrides, dict) and "quantization_config" in overrides):
        return
    method, setting = own.get("quant_method"), "model"
    if method not in QUANTIZATIONS:
        why = f"the checkpoint is quantized by {str(method)[:40]}, and Neuron has {', '.join(QUANTIZATIONS)}"
        yield error("checkpoint-quantization", setting, why, "Use an unquantized checkpoint, or one of those methods.")
    groups = [mapping(group) for group in mapping(own.get("config_groups")).values()]
    quantized = next((part for group in groups for part in _quantized(group)), None)
    if method == "compressed-tensors" and quantized and chosen != "mxfp8":
        why = f"compressed-tensors {quantized} are read as MXFP8 only"
        fix = "Set quantization to mxfp8, or use another checkpoint." if "mxfp8" in had else "Use another checkpoint."
        yield error("checkpoint-quantization", setting, why, fix)


def _quantized(group: Mapping[str, Json]) -> Iterator[str]:
    """What a group of a compressed-tensors checkpoint quantizes, beside the KV cache (plugin, vllm/platform.py)."""
    targets = group.get("targets")
    attention = isinstance(targets, list) and any("Attention" in str(target) for target in targets)
    for part in ("weights", "output_activations", *(() if attention else ("input_activations",))):
        if group.get(part):
            yield part.replace("_", " ")


def language_only(context: CheckContext) -> Iterator[Finding]:
    """A switch that the plugin reads only at the top level of `additional_config`."""
    for section in ("neuron_config", VISION_SECTIONS.get(context.line.name, VISION_SECTION)):
        content = context.draft.additional.get(section)
        if isinstance(content, dict) and LANGUAGE_ONLY in content:
            why = f"the plugin silently ignores {LANGUAGE_ONLY} inside {section}"
            fix = "Move it to the top level of additional_config."
            yield error("language-only-nested", f"{section}.{LANGUAGE_ONLY}", why, fix)


def vision(context: CheckContext) -> Iterator[Finding]:
    """The encoder's degrees and buckets (vllm_neuron/model/neuron_config.py, VisionNeuronConfig)."""
    name, ranks = (
        VISION_SECTIONS.get(context.line.name, VISION_SECTION),
        context.draft.number("tensor_parallel_size") or 1,
    )
    section, setting = mapping(context.draft.additional.get(name)), context.setting(VISION_SECTION)
    tp, dp = (value if isinstance(value := section.get(key), int) else 1 for key in ("tp_size", "dp_size"))
    if tp < 1 or dp < 1 or (tp * dp != ranks if tp > 1 and dp > 1 else ranks % max(tp, dp)):
        why = f"tp_size {tp} and dp_size {dp} do not make up the {ranks} ranks of tensor_parallel_size"
        yield error("vision-degrees", f"{setting}.tp_size", why, "Remove one of them, and use a divisor for the other.")
    buckets, longest = section.get("num_vision_tokens_buckets"), section.get("max_vision_seq_len")
    block = section.get("vision_attention_block_size")
    block = block if isinstance(block, int) else VISION_BLOCK
    if buckets and longest:
        why = "num_vision_tokens_buckets and max_vision_seq_len are two ways to say the same"
        yield error("vision-buckets", f"{setting}.max_vision_seq_len", why, "Keep one of them.")
    most = max(whole_numbers(buckets), default=longest if isinstance(longest, int) else block)
    if most < block:
        why = f"the longest bucket has {most} tokens, fewer than vision_attention_block_size ({block})"
        yield error("vision-buckets", f"{setting}.num_vision_tokens_buckets", why, f"Use {block} or more.")
    if context.draft.args.get("mm_encoder_only") is True and context.draft.additional.get(LANGUAGE_ONLY) is True:
        why = f"an engine is the encoder or the language model, and {LANGUAGE_ONLY} is true as well"
        yield error("vision-role", "mm_encoder_only", why, "Remove one of them.")


def native_start(context: CheckContext) -> Iterator[Finding]:
    """Runs these checks on the native plugin only."""
    if context.line.keys is ConfigKeys.NATIVE:
        checks = (arguments, degrees, decode_context_parallel, variables, quantization, language_only, vision)
        for check in checks:
            yield from check(context)


NATIVE: Final = (native_start,)
