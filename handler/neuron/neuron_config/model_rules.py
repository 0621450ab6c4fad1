"""Rules that the plugin and the model's own code raise on, after NeuronConfig was built.

Sources: NxDI 0.10 (aws-neuron/neuronx-distributed-inference, src/neuronx_distributed_inference) and plugin 0.5.0
(vllm-project/vllm-neuron, vllm_neuron). Each rule names its place there.
"""

from __future__ import annotations

from math import log2
from typing import Final

from handler.neuron.checkpoint.model_facts import number, text_part
from handler.neuron.neuron_config.config_values import BrokenRule, ConfigRule, ConfigValues, rule

# The shortest bucket that is generated, without and with prefix caching (modules/autobucketing.py:198 and :190).
SHORTEST: Final = (128, 512)
FLASH_DECODING_MODELS: Final = ("llama", "llama4", "llava", "pixtral", "gpt_oss", "qwen3_vl")
UNFUSED: Final = ("mistral", "mixtral")  # see `fused_qkv` in checks/graph.py
IMAGE_MODELS: Final = ("llama4", "llava", "pixtral", "qwen2_vl", "qwen3_vl")


def sequence_parallel_lengths(values: ConfigValues) -> BrokenRule | None:
    """models/model_base.py:1477, for each graph of the context encoding model."""
    degree = values.degree("tp_degree")
    if not values.flag("sequence_parallel_enabled") or values.chunked:
        return None
    uneven = [length for length in _context_lengths(values) if length % degree]
    if not uneven:
        return None
    why = (
        f"sequence parallelism divides each prompt bucket by the degree of {degree}, and {uneven[0]} is not a multiple"
    )
    fix = f"Give context_encoding_buckets that are multiples of {degree}, or set sequence_parallel_enabled to false."
    return BrokenRule("sequence_parallel_enabled", why, fix)


def _context_lengths(values: ConfigValues) -> list[int]:
    """The buckets of the context encoding model (modules/autobucketing.py:7 and :151)."""
    longest = values.number("max_context_length")
    shortest = SHORTEST[values.flag("is_prefix_caching")]
    if not values.flag("enable_bucketing") or longest < 1 or longest == shortest:
        return [longest]
    return values.numbers("context_encoding_buckets") or generated_buckets(longest, shortest)


def generated_buckets(longest: int, shortest: int = SHORTEST[0]) -> list[int]:
    """NxD Inference's own buckets (modules/autobucketing.py). None is close to the last: its logarithm is rounded."""
    if longest <= shortest:
        return [longest]
    return [2**power for power in range(int(log2(shortest)), round(log2(longest)))] + [longest]


def qkv_kernel_weights(values: ConfigValues) -> BrokenRule | None:
    """modules/attention/gqa.py:497."""
    kernel = next((key for key in ("qkv_kernel_enabled", "qkv_nki_kernel_enabled") if values.flag(key)), None)
    if kernel is None or values.flag("fused_qkv"):
        return None
    fix = "Remove it." if values.model.get("model_type") in UNFUSED else "Set fused_qkv to true, or remove it."
    return BrokenRule(kernel, "the QKV kernel needs fused QKV weights", fix)


def _kv_heads(values: ConfigValues) -> int:
    text = text_part(values.model)
    return number(text, "num_key_value_heads", "num_kv_heads") or number(text, "num_attention_heads")


def flash_decoding_heads(values: ConfigValues) -> BrokenRule | None:
    """modules/flashdecode/utils.py:22: the ranks of each KV head are a whole number, in models that count them."""
    heads, kv_heads = number(text_part(values.model), "num_attention_heads"), _kv_heads(values)
    ranks = min(values.degree("tp_degree"), heads)
    if values.model.get("model_type") not in FLASH_DECODING_MODELS:
        return None
    if not values.flag("flash_decoding_enabled") or not heads or ranks % kv_heads == 0:
        return None
    why = f"flash decoding shares each of the model's {kv_heads} KV heads among ranks, and there are {ranks} ranks"
    return BrokenRule("flash_decoding_enabled", why, f"Remove it, or use a multiple of {kv_heads} ranks.")


def attention_dp_heads(values: ConfigValues) -> BrokenRule | None:
    """modules/attention/utils.py:621: decode and prefill must have as many KV heads on each rank."""
    tp, dp, heads = values.degree("tp_degree"), values.degree("attention_dp_degree"), _kv_heads(values)
    if not heads or dp == 1 or values.degree("cp_degree") > 1:
        return None
    if max(heads // max(tp // dp, 1), 1) == max(heads // tp, 1):
        return None
    why = f"with attention_dp_degree {dp} a rank holds more of the model's {heads} KV heads in decode than in prefill"
    return BrokenRule("attention_dp_degree", why, f"Use a degree of {max(tp // heads, 1)} or less.")


def context_parallel_heads(values: ConfigValues) -> BrokenRule | None:
    """modules/attention/utils.py:464, and :473: the ranks of prefill hold equally many heads."""
    tp, cp, dp = (values.degree(key) for key in ("tp_degree", "cp_degree", "attention_dp_degree"))
    ranks, heads = max(tp // dp if cp > 1 else tp, 1), _kv_heads(values)
    if (cp == 1 and dp == 1) or cp == dp:
        return None
    prefill = max(tp // cp, 1)
    if cp > 1 and heads and heads * max(prefill // heads, 1) % prefill:
        why = f"prefill runs on {prefill} ranks, over which the model's {heads} KV heads do not divide"
        return BrokenRule("cp_degree", why, f"Use degrees whose quotient divides {heads} or is a multiple of it.")
    if ranks >= heads:
        return None
    key = "cp_degree" if cp > 1 else "attention_dp_degree"
    why = f"decode runs on {ranks} ranks, fewer than the model's {heads} KV heads"
    return BrokenRule(key, why, f"Remove it, or use a tensor parallel degree of {heads * (tp // ranks)} or more.")


def model_with_images(values: ConfigValues) -> BrokenRule | None:
    """models/image_to_text_model_base.py:169, and models/llama4/modeling_llama4.py:95 for the block KV layout."""
    kind = values.model.get("model_type")
    if kind not in IMAGE_MODELS:
        return None
    clash = {
        "is_prefix_caching": values.flag("is_prefix_caching"),
        "is_block_kv_layout": values.flag("is_block_kv_layout"),
        "chunked_prefill_config": values.chunked,
        "is_medusa": values.flag("is_medusa"),
        "enable_fused_speculation": values.flag("enable_fused_speculation") or values.eagle,
    }
    if kind == "qwen3_vl":  # models/qwen3_vl/modeling_qwen3_vl.py:101
        clash |= {key: values.degree(key) > 1 for key in ("attention_dp_degree", "cp_degree")}
    key = next((key for key, on in clash.items() if on), None)
    return BrokenRule(key, f"models of type {kind} do not work with {key}", "Remove it.") if key else None


def chunked_attention_parallel(values: ConfigValues) -> BrokenRule | None:
    """models/config.py:919 and :920."""
    chunk, length = text_part(values.model).get("attention_chunk_size"), values.number("seq_len")
    degree = values.degree("cp_degree")
    if not isinstance(chunk, int) or not 0 < chunk < length or (chunk % degree == 0 and length % chunk % degree == 0):
        return None
    why = f"cp_degree {degree} does not divide the model's attention chunks of {chunk} tokens, or the last one"
    return BrokenRule("cp_degree", why, f"Use a degree that divides {chunk}, and a max_model_len that it divides.")


def windowed_context(values: ConfigValues) -> BrokenRule | None:
    """models/config.py:925. The class of gpt-oss replaces this check, and takes any size."""
    window, size = text_part(values.model).get("sliding_window"), values.number("windowed_context_encoding_size")
    if not isinstance(window, int) or not size or size == window or values.model.get("model_type") == "gpt_oss":
        return None
    why = f"it must be the model's sliding window, {window}"
    return BrokenRule("windowed_context_encoding_size", why, f"Set it to {window}, or remove it.")


def fused_residual(values: ConfigValues) -> BrokenRule | None:
    """models/llama/modeling_llama.py:1008, :1011 and :1023."""
    parallel = values.flag("sequence_parallel_enabled")
    if values.flag("qkv_kernel_fuse_residual_add") and (parallel or not values.flag("qkv_kernel_enabled")):
        why = "it needs the QKV kernel, and does not work with sequence parallelism"
        return BrokenRule("qkv_kernel_fuse_residual_add", why, "Remove it.")
    if values.flag("mlp_kernel_fuse_residual_add") and values.mlp_kernel and parallel:
        return BrokenRule("mlp_kernel_fuse_residual_add", "it does not work with sequence parallelism", "Remove it.")
    return None


def mixtral_width(values: ConfigValues) -> BrokenRule | None:
    """The layers of NxD that Mixtral's experts use divide the hidden size by the degree, without padding."""
    width, degree = number(values.model, "hidden_size"), values.degree("tp_degree")
    if values.model.get("model_type") != "mixtral" or not width or width % degree == 0:
        return None
    return BrokenRule("tp_degree", f"Mixtral's width of {width} is not divisible by {degree}", "Use a power of two.")


SEQUENCE_PARALLEL: Final = ConfigRule("sequence-parallel-lengths", sequence_parallel_lengths)
MODEL_RULES: Final = (
    # modules/autobucketing.py:56.
    rule(
        "prefix-buckets",
        "context_encoding_buckets",
        lambda v: (
            v.flag("enable_bucketing")
            and v.flag("is_prefix_caching")
            and v.numbers("context_encoding_buckets")
            and v.get("prefix_buckets") is None
        ),
        "context buckets with prefix caching need prefix_buckets, the lengths of cached prefixes",
        "Set prefix_buckets in NeuronConfig, or remove it.",
    ),
    # Plugin, worker/neuronx_distributed_model_loader.py:1182.
    rule(
        "blocks-of-prefix-caching",
        "is_block_kv_layout",
        lambda v: v.flag("is_prefix_caching") and not v.flag("is_block_kv_layout"),
        "prefix caching needs the block KV layout",
        "Remove it, or set enable_prefix_caching to false.",
    ),
    # modules/kvcache/block_kv_cache_manager.py:41: the cache gets a shape for these two features only.
    rule(
        "blocks-alone",
        "is_block_kv_layout",
        lambda v: v.flag("is_block_kv_layout") and not v.flag("is_prefix_caching") and not v.chunked,
        "the block KV layout works with prefix caching or chunked prefill only, and both are off",
        "Remove it, or set enable_prefix_caching to true.",
    ),
    SEQUENCE_PARALLEL,
    ConfigRule("qkv-kernel-weights", qkv_kernel_weights),
    ConfigRule("flash-decoding-heads", flash_decoding_heads),
    ConfigRule("attention-dp-heads", attention_dp_heads),
    ConfigRule("context-parallel-heads", context_parallel_heads),
    ConfigRule("model-with-images", model_with_images),
    ConfigRule("chunked-attention-parallel", chunked_attention_parallel),
    ConfigRule("windowed-context", windowed_context),
    ConfigRule("fused-residual", fused_residual),
    ConfigRule("mixtral-width", mixtral_width),
)
