"""What does not start, or ends the engine later: each rule with the place, and the kind of error it is there."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from neuron_stand_in.native.configuration import NativeConfiguration
from neuron_stand_in.native.prefill_buckets import compiled_buckets

DEGREES = ("ep_degree", "attention_dp_size", "embedding_dp_size", "lm_head_dp_size", "mlp_dp_size")
MODELS = (
    "LlamaForCausalLM",
    "GptOssForCausalLM",
    "Eagle3LlamaForCausalLM",
    "Qwen3ForCausalLM",
    "Qwen3VLForConditionalGeneration",
)
CACHE_DTYPES = ("auto", "bfloat16", "float16", "float32", "fp8", "fp8_e4m3")
THRESHOLD = "long_prefill_token_threshold"
QUANTIZATIONS = ("neuron_quant", "compressed-tensors", "modelopt")


class Place(StrEnum):
    """Where a rule refuses, in the order of a start. REQUEST: the first request that it concerns ends the engine."""

    PARSER = "parser"
    PLATFORM = "platform"
    RUNNER = "runner"
    SCHEDULER = "scheduler"
    WORKER = "worker"
    REQUEST = "request"


@dataclass(frozen=True, slots=True)
class Refusal:
    rule: str
    place: Place
    error: type[Exception]
    text: str


@dataclass(frozen=True, slots=True)
class Rule:
    """One rule. `broken` returns a text where a configuration breaks it, or True."""

    name: str
    place: Place
    broken: Callable[[NativeConfiguration], str | bool]
    error: type[Exception] = ValueError


def _argument(name: str, allowed: tuple[Any, ...]) -> Callable[[NativeConfiguration], bool]:
    return lambda asked: asked.args.get(name, allowed[0]) not in allowed


def _buckets(asked: NativeConfiguration) -> str | bool:
    try:
        compiled_buckets(asked)
    except ValueError as error:
        return str(error)
    return False


def _scheduled(asked: NativeConfiguration) -> bool:
    """The scheduler reads max_num_batched_tokens and not the segment."""
    segments = asked.neuron.get("kv_segment_size_buckets")
    return bool(segments) and min(asked.max_num_batched_tokens, asked.max_model_len) > segments[0]


def _component_parallel(asked: NativeConfiguration) -> bool:
    if not any(asked.neuron.get(name, 1) > 1 for name in DEGREES[1:]):
        return False
    consumer = asked.transfer.get("kv_role") in ("kv_consumer", "kv_both")
    return not consumer or asked.args.get("data_parallel_size", 1) < 2


def _groups(asked: NativeConfiguration) -> bool:
    """Ranks in groups of one size (neuron_parallel_state.py, _create_neuron_groups)."""
    engines = asked.args.get("data_parallel_size", 1)
    sampling = int((asked.neuron.get("on_device_sampling_config") or {}).get("sampling_dp_degree", 1))
    sizes = [asked.neuron.get(name, 1) for name in DEGREES[1:]]
    return any(size > 1 and engines % size for size in sizes) or asked.tensor_parallel_size % max(sampling, 1) > 0


def _context_parallel(asked: NativeConfiguration) -> bool:
    degree, ranks = asked.args.get("decode_context_parallel_size", 1), asked.tensor_parallel_size
    if degree <= 1:
        return False
    heads = asked.model.get("num_attention_heads", 1)
    kv_heads = asked.model.get("num_key_value_heads", heads)
    connector = asked.transfer.get("kv_connector", "NeuronNixlConnector")
    fits = ranks >= degree * kv_heads and ranks % degree == 0 and (heads // kv_heads) % degree == 0
    beside = str(asked.args.get("kv_cache_dtype", "auto")).startswith("fp8") or "speculative_config" in asked.args
    stride = degree * asked.block_size
    step, threshold = min(asked.max_num_batched_tokens, asked.max_model_len), asked.args.get(THRESHOLD, 0)
    uneven = step % stride or threshold % stride
    return not fits or beside or bool(uneven) or connector != "NeuronNixlConnector"


def _interleave(asked: NativeConfiguration) -> bool:
    """A cache of several ranks that is transferred (neuron_model_runner.py, __init__). vLLM's default is 1."""
    spread = asked.args.get("decode_context_parallel_size", 1) > 1 and bool(asked.transfer)
    return spread and asked.args.get("cp_kv_cache_interleave_size", 1) != asked.block_size


def _buffer(asked: NativeConfiguration) -> bool:
    """platform.py, get_nixl_supported_devices. vLLM's default is the platform's device, neuron."""
    nixl = asked.transfer.get("kv_connector") in ("NeuronNixlConnector", "NixlConnector")
    return nixl and asked.transfer.get("kv_buffer_device", "neuron") != "cuda"


def _weights_compressed(asked: NativeConfiguration) -> bool:
    own = asked.model.get("quantization_config") or {}
    groups = (own.get("config_groups") or {}).values()
    beside = any(
        group.get("weights")
        or group.get("output_activations")
        or (group.get("input_activations") and not any("Attention" in target for target in group.get("targets", ())))
        for group in groups
    )
    return own.get("quant_method") == "compressed-tensors" and beside and asked.neuron.get("quantization") != "mxfp8"


def _conversion(asked: NativeConfiguration) -> bool:
    """model/qwen3/factory.py of 0.24 has bf16 alone, that of 0.29 mxfp8 too; model/qwen3_vl/factory.py."""
    names = asked.model.get("architectures") or ()
    qwen = {"Qwen3ForCausalLM", "Qwen3VLForConditionalGeneration"} & set(names)
    return bool(qwen) and asked.neuron.get("quantization") not in (None, "bf16", "mxfp8")


def _quantized_otherwise(asked: NativeConfiguration) -> bool:
    own: Mapping[str, Any] = asked.model.get("quantization_config") or {}
    return bool(own) and own.get("quant_method") not in QUANTIZATIONS


def _no_experts(asked: NativeConfiguration) -> bool:
    named = any(asked.model.get(name) for name in ("num_experts", "num_local_experts", "n_routed_experts"))
    return bool(asked.args.get("enable_expert_parallel")) and not named


def _too_long(asked: NativeConfiguration) -> bool:
    limit = asked.model.get("max_position_embeddings") or asked.max_model_len
    allowed = asked.environment.get("VLLM_ALLOW_LONG_MAX_MODEL_LEN") == "1"
    return asked.max_model_len > limit and not allowed and not asked.model.get("rope_scaling")


def _devices(asked: NativeConfiguration) -> bool:
    """As many as ranks of all engines here: vLLM gives each its part (neuron_worker.py, _get_visible_devices)."""
    text, engines = asked.environment.get("NEURON_VISIBLE_DEVICES"), asked.args.get("data_parallel_size", 1)
    ranks, chosen = asked.tensor_parallel_size * engines, asked.args.get("device_ids")
    if chosen:
        return len(chosen) < ranks or (len(chosen) > ranks and engines == 1)
    if text is None:
        return False
    bounds = [part.partition("-") for part in text.split(",")]
    if engines > 1 and "-" in text and len(bounds) > 1:
        return True  # platform.py, device_id_to_physical_device_id
    return sum(int(last or first) - int(first) + 1 for first, _, last in bounds) != ranks


def _rotary(asked: NativeConfiguration) -> bool:
    """model/llama3/model.py, LlamaRotaryEmbedding."""
    rope = asked.model.get("rope_scaling") or asked.model.get("rope_parameters") or {}
    kind = rope.get("rope_type", rope.get("type", "default"))
    return "LlamaForCausalLM" in (asked.model.get("architectures") or ()) and kind not in ("default", "llama3")


def _pools(asked: NativeConfiguration) -> bool:
    return asked.args.get("runner") == "pooling" or asked.args.get("convert") in ("embed", "classify")


P, R = Place, RuntimeError
RULES: tuple[Rule, ...] = (
    # vLLM 0.24's own parser and `create_engine_config`.
    Rule("tokens-and-sequences", P.PARSER, lambda asked: asked.max_num_batched_tokens < asked.max_num_seqs),
    Rule(
        "tokens-without-chunks",
        P.PARSER,
        lambda asked: asked.max_num_batched_tokens < asked.max_model_len and not asked.chunked_prefill,
    ),
    Rule("heads", P.PARSER, lambda asked: asked.model.get("num_attention_heads", 0) % asked.tensor_parallel_size != 0),
    Rule("length-of-model", P.PARSER, _too_long),
    Rule("quantization-method", P.PARSER, _quantized_otherwise),
    Rule("experts", P.PARSER, _no_experts),
    Rule("sleep-mode", P.PARSER, _argument("enable_sleep_mode", (False,))),
    # The platform.
    Rule(
        "v2-runner",
        P.PLATFORM,
        lambda asked: asked.environment.get("VLLM_USE_V2_MODEL_RUNNER", "").lower() in ("1", "true", "yes", "on"),
    ),
    Rule(
        "structured-outputs-kind",
        P.PLATFORM,
        lambda asked: not isinstance(asked.neuron.get("enable_structured_outputs", False), bool),
    ),
    Rule("component-parallelism", P.PLATFORM, _component_parallel),
    Rule("decode-context-parallelism", P.PLATFORM, _context_parallel),
    Rule("compressed-weights", P.PLATFORM, _weights_compressed),
    Rule("pipeline-parallelism", P.PLATFORM, lambda asked: asked.args.get("pipeline_parallel_size", 1) > 1),
    Rule("lora", P.PLATFORM, _argument("enable_lora", (False,))),
    Rule(
        "cpu-compile-target",
        P.PLATFORM,
        lambda asked: asked.cpu_compile and "NEURON_PLATFORM_TARGET_OVERRIDE" not in asked.environment,
        R,
    ),
    Rule(
        "cpu-compile-speculation", P.PLATFORM, lambda asked: asked.cpu_compile and "speculative_config" in asked.args, R
    ),
    Rule("kv-offload", P.PLATFORM, lambda asked: bool(asked.args.get("kv_offloading_size"))),
    # The worker, which makes the runner.
    Rule("visible-cores", P.WORKER, lambda asked: "NEURON_RT_VISIBLE_CORES" in asked.environment, R),
    Rule("visible-devices", P.WORKER, _devices, AssertionError),
    Rule("eager", P.WORKER, _argument("enforce_eager", (False,)), AssertionError),
    Rule(
        "expert-parallelism",
        P.WORKER,
        lambda asked: asked.neuron.get("ep_degree", 1) > 1 and not asked.args.get("enable_expert_parallel"),
    ),
    Rule("model", P.WORKER, lambda asked: not set(asked.model.get("architectures") or MODELS) & set(MODELS)),
    Rule(
        "mxfp4",
        P.WORKER,
        lambda asked: (
            asked.neuron.get("quantization") == "mxfp4"
            and (asked.target != "trn3" or asked.model.get("model_type") != "gpt_oss")
        ),
    ),
    Rule("model-quantization", P.WORKER, _conversion),
    Rule("groups", P.WORKER, _groups),
    Rule("rotary-embedding", P.WORKER, _rotary, NotImplementedError),
    Rule("kv-buffer", P.WORKER, _buffer, R),
    Rule("interleave", P.RUNNER, _interleave, AssertionError),
    Rule("degrees", P.RUNNER, lambda asked: any(asked.neuron.get(name, 1) < 1 for name in DEGREES)),
    Rule("buckets", P.RUNNER, _buckets),
    Rule("async-on-cpu", P.RUNNER, lambda asked: asked.async_scheduling and not asked.on_device, R),
    Rule(
        "speculation",
        P.RUNNER,
        lambda asked: (asked.args.get("speculative_config") or {}).get("method", "eagle3") != "eagle3",
    ),
    # "KV cache quantization": FP8 in one format, or the float types.
    Rule("kv-cache-dtype", P.RUNNER, _argument("kv_cache_dtype", CACHE_DTYPES)),
    # pooling_adapter.py
    Rule("classify", P.RUNNER, lambda asked: asked.args.get("convert") == "classify", NotImplementedError),
    Rule(
        "pooling-fp8",
        P.RUNNER,
        lambda asked: _pools(asked) and str(asked.args.get("kv_cache_dtype", "auto")).startswith("fp8"),
    ),
    Rule("policy", P.SCHEDULER, _argument("scheduling_policy", ("fcfs",))),
    Rule("scheduled-tokens", P.SCHEDULER, _scheduled, R),
    Rule(
        "structured-async",
        P.REQUEST,
        lambda asked: asked.async_scheduling and asked.neuron.get("enable_structured_outputs") is True,
        AssertionError,
    ),
)


def refusal(asked: NativeConfiguration, *places: Place) -> Refusal | None:
    """The first rule that is broken, of the places given or of all."""
    for rule in RULES:
        if not places or rule.place in places:
            broken = rule.broken(asked)
            if broken:
                return Refusal(rule.name, rule.place, rule.error, broken if isinstance(broken, str) else rule.name)
    return None


def enforce(asked: NativeConfiguration, *places: Place) -> None:
    """:raises Exception: of the rule's kind, where a rule is broken."""
    found = refusal(asked, *places)
    if found is not None:
        raise found.error(f"native stand-in, {found.place}: {found.text}")
