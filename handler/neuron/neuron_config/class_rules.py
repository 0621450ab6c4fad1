"""Rules on which the class NeuronConfig raises (NxDI 0.10, models/config.py), and those on the configurations in it."""

from __future__ import annotations

from typing import Final

from handler.json_value import whole_number
from handler.neuron.checkpoint.model_facts import number, text_part
from handler.neuron.neuron_config.config_values import BrokenRule, ConfigRule, ConfigValues, option, rule

DTYPES: Final = ("float32", "float16", "bfloat16", "float8_e4m3fn", "float8_e5m2")
CTE_PARTS: Final = ("qkv_kernel_enabled", "qkv_nki_kernel_enabled", "out_proj_kernel_enabled")
CASCADED: Final = "attn_block_tkg_nki_kernel_cascaded_attention"
CACHE_UPDATE: Final = "attn_block_tkg_nki_kernel_cache_update"
# NxD, quantization/quantization_config.py:100, QuantizedDtype.
QUANTIZED_DTYPES: Final = ("int8", "f8e4m3", "f8e4m3fn", "f8e5m2", "f4e2m1fn_x4", "f8e4m3fn_x4", "f8e5m2_x4")
# NxDI, models/application_base.py:776 to :790. The plugin always quantizes there before it compiles.
QUANTIZATION_TYPES: Final = ("per_tensor_symmetric", "per_channel_symmetric")
ROUTER_OPTIONS: Final = {"act_fn": ("softmax", "sigmoid"), "dtype": ("float32", "float16", "bfloat16")}
SHARDING: Final = ("HI_LO", "PING_PONG")
REPLACEMENT: Final = ("ref_dir", "neuron_dir", "tf_map", "neuron_config")


def unknown_dtype(values: ConfigValues) -> BrokenRule | None:
    for key in ("torch_dtype", "attention_dtype", "rpl_reduce_dtype"):
        dtype = values.text(key)
        if dtype is not None and dtype not in DTYPES:
            return BrokenRule(key, f"'{dtype}' is not a data type of NeuronConfig", f"Use one of {', '.join(DTYPES)}.")
    return None


def empty_buckets(values: ConfigValues) -> BrokenRule | None:
    for key in ("context_encoding_buckets", "token_generation_buckets", "token_generation_batches"):
        if values.get(key) == []:
            return BrokenRule(key, "an empty list of buckets raises an IndexError", "Remove it, or give a length.")
    return None


def above(code: str, key: str, limit: str, why: str, fix: str) -> ConfigRule:
    """A rule that no bucket is above a limit. The texts have `{}` for the largest bucket and for the limit."""

    def check(values: ConfigValues) -> BrokenRule | None:
        buckets, most = _sizes(values, key), values.number(limit)
        if not buckets or max(buckets) <= most:
            return None
        return BrokenRule(key, why.format(max(buckets), most), fix.format(most))

    return ConfigRule(code, check)


def _sizes(values: ConfigValues, key: str) -> list[int]:
    value = whole_number(values.get(key))
    return [value] if value is not None else values.numbers(key) or []


def batch_buckets_alone(values: ConfigValues) -> BrokenRule | None:
    key = "token_generation_batches"
    features = {
        "speculation": values.speculates,
        "Medusa": values.flag("is_medusa"),
        "a token tree": values.get("token_tree_config") is not None,
        "chunked prefill": values.chunked,
        "prefix caching": values.flag("is_prefix_caching"),
        "the block KV layout": values.flag("is_block_kv_layout"),
    }
    clash = ", ".join(name for name, on in features.items() if on)
    if not clash or not _sizes(values, key):
        return None
    return BrokenRule(key, f"token buckets by batch do not work with {clash}", f"Remove it, or switch off {clash}.")


def chunked_attention_prefix_caching(values: ConfigValues) -> BrokenRule | None:
    """Llama 4's chunked attention, when the sequence is longer than a chunk (InferenceConfig.validate_config)."""
    chunk = text_part(values.model).get("attention_chunk_size")
    if not isinstance(chunk, int) or chunk >= values.number("seq_len"):
        return None
    clash = {
        "is_prefix_caching": values.flag("is_prefix_caching"),
        "chunked_prefill_config": values.chunked,
        "flash_decoding_enabled": values.flag("flash_decoding_enabled"),
        "attn_tkg_builtin_kernel_enabled": values.flag("attn_tkg_builtin_kernel_enabled"),
        "attn_tkg_nki_kernel_enabled": values.flag("attn_tkg_nki_kernel_enabled"),
        "attention_dp_degree": values.number("attention_dp_degree") > 1,
    }
    key = next((key for key, on in clash.items() if on), None)
    if key is None:
        return None
    why = f"the model has chunked attention (chunks of {chunk} tokens), which does not work with {key}"
    return BrokenRule(key, why, f"Remove it, or keep max_model_len at {chunk} or below.")


SHAPE_RULES: Final = (
    ConfigRule("unknown-dtype", unknown_dtype),
    option("unknown-cast-type", "cast_type", ("config", "as-declared"), "a cast type"),
    rule(
        "attention-dtype",
        "attention_dtype",
        lambda v: (
            v.text("attention_dtype") not in (None, v.text("torch_dtype")) and v.text("cast_type") != "as-declared"
        ),
        "attention is in {attention_dtype} and the rest in {torch_dtype}, but cast_type casts both to one type",
        "Set cast_type to 'as-declared', or remove attention_dtype.",
    ),
    rule(
        "context-longer-than-length",
        "max_context_length",
        lambda v: v.number("max_context_length") > v.number("max_length"),
        "the longest prompt ({max_context_length} tokens) is longer than the whole sequence ({max_length} tokens)",
        "Lower it to {max_length} or less, or raise max_model_len.",
    ),
    ConfigRule("empty-buckets", empty_buckets),
    above(
        "context-bucket-too-long",
        "context_encoding_buckets",
        "max_context_length",
        "the context bucket {} is above max_context_length, {}",
        "Keep the buckets at {} or below.",
    ),
    above(
        "token-bucket-too-long",
        "token_generation_buckets",
        "max_length",
        "the token bucket {} is above the sequence length, {}",
        "Keep the buckets at {} or below.",
    ),
    above(
        "token-batch-too-large",
        "token_generation_batches",
        "tkg_batch_size",
        "the token batch {} is above the decode batch, {}",
        "Keep it at {} or below, or raise max_num_seqs.",
    ),
    ConfigRule("batch-buckets-alone", batch_buckets_alone),
    ConfigRule("chunked-attention", chunked_attention_prefix_caching),
)
FEATURE_RULES: Final = (
    rule(
        "quantized-without-path",
        "quantized_checkpoints_path",
        lambda v: v.flag("quantized") and v.get("quantized_checkpoints_path") is None,
        "quantized weights are read from a path, and none is given",
        "Set it to the directory of the quantized checkpoint.",
    ),
    rule(
        "quantized-qkv-kernel",
        "modules_to_not_convert",
        lambda v: v.qkv_kernel and (v.flag("quantized") or v.mlp_quantized) and not v.get("modules_to_not_convert"),
        "the QKV kernel with quantized weights needs the list of modules that are not quantized",
        "List the modules that stay in bfloat16, such as lm_head and self_attn.",
    ),
    option(
        "activation-quantization-type",
        "activation_quantization_type",
        ("dynamic", "static"),
        "a type of activation quantization",
    ),
    rule(
        "activation-quantization-kernels",
        "activation_quantization_type",
        lambda v: v.text("activation_quantization_type") and (v.mlp_kernel or v.flag("quantized_mlp_kernel_enabled")),
        "activation quantization does not work with the MLP kernels",
        "Remove it, or switch the MLP kernels off.",
    ),
    rule(
        "rmsnorm-quantize",
        "rmsnorm_quantize_kernel_enabled",
        lambda v: v.flag("rmsnorm_quantize_kernel_enabled") and not v.flag("quantized_mlp_kernel_enabled"),
        "the RMSNorm quantization kernel feeds the quantized MLP kernel, which is off",
        "Set quantized_mlp_kernel_enabled too, or remove it.",
    ),
    rule(
        "full-model-shuffled",
        "is_full_model_shuffled",
        lambda v: v.flag("is_full_model_shuffled") and not (v.flag("is_mxfp4_compute") or v.flag("is_eagle_draft")),
        "a fully shuffled model is for MXFP4 compute or an EAGLE draft",
        "Set is_mxfp4_compute too, or remove it.",
    ),
    rule(
        "medusa-async",
        "async_mode",
        lambda v: v.flag("is_medusa") and v.flag("async_mode"),
        "Medusa decoding does not work with async mode",
        "Set async_mode to false.",
    ),
    rule(
        "chunked-without-blocks",
        "is_block_kv_layout",
        lambda v: v.chunked and not v.flag("is_block_kv_layout"),
        "chunked prefill needs the block KV layout",
        "Set is_block_kv_layout to true, or remove chunked_prefill_config.",
    ),
    rule(
        "chunked-batch",
        "batch_size",
        lambda v: v.nested("chunked_prefill_config").get("tkg_model_enabled") is False and v.number("batch_size") != 1,
        "chunked prefill without a separate decode graph puts all requests into one sequence",
        "Set batch_size to 1, or leave tkg_model_enabled on.",
    ),
    rule(
        "tp-by-cp",
        "cp_degree",
        lambda v: v.number("tp_degree") % v.degree("cp_degree"),
        "tensor parallel degree {tp_degree} is not a multiple of cp_degree {cp_degree}",
        "Use a cp_degree that divides {tp_degree}.",
    ),
    rule(
        "tp-by-dp",
        "attention_dp_degree",
        lambda v: v.number("tp_degree") % v.degree("attention_dp_degree"),
        "tensor parallel degree {tp_degree} is not a multiple of attention_dp_degree {attention_dp_degree}",
        "Use a degree that divides {tp_degree}.",
    ),
    rule(
        "batch-by-dp",
        "attention_dp_degree",
        lambda v: v.number("tkg_batch_size") % v.degree("attention_dp_degree"),
        "the decode batch of {tkg_batch_size} is not a multiple of attention_dp_degree {attention_dp_degree}",
        "Make max_num_seqs a multiple of {attention_dp_degree}.",
    ),
    rule(
        "dp-continuous-batching",
        "is_continuous_batching",
        lambda v: v.number("attention_dp_degree") > 1 and not v.flag("is_continuous_batching"),
        "attention data parallelism works with continuous batching only",
        "Use max_num_seqs above 1, or is_continuous_batching true.",
    ),
    rule(
        "dp-above-cp",
        "attention_dp_degree",
        lambda v: (
            v.number("cp_degree") > 1
            and v.number("attention_dp_degree") > 1
            and v.number("cp_degree") % v.number("attention_dp_degree")
        ),
        "attention_dp_degree {attention_dp_degree} is above cp_degree {cp_degree}, or does not divide it",
        "Use a degree that divides {cp_degree}.",
    ),
    rule(
        "mlp-cp-sequence-parallel",
        "sequence_parallel_enabled",
        lambda v: v.number("mlp_cp_degree") > 1 and not v.flag("sequence_parallel_enabled"),
        "context parallelism of the MLP needs sequence parallelism",
        "Set it to true, or leave mlp_cp_degree at 1.",
    ),
    rule(
        "strided-context-parallel",
        "strided_context_parallel_kernel_enabled",
        lambda v: v.flag("strided_context_parallel_kernel_enabled") and v.number("cp_degree") <= 1,
        "the strided context parallel kernel needs a cp_degree above 1",
        "Raise cp_degree, or leave the kernel off.",
    ),
    rule(
        "rs-ag-batch",
        "ep_dispatch_cc_option",
        lambda v: v.text("ep_dispatch_cc_option") == "RS_AG" and v.number("tp_degree") > v.number("tkg_batch_size"),
        "RS_AG does not work with a tensor parallel degree ({tp_degree}) above the decode batch ({tkg_batch_size})",
        "Use AR_AG, or raise max_num_seqs.",
    ),
)


def cte_kernel_parts(values: ConfigValues) -> BrokenRule | None:
    """The class tests `is False`, and False is the default, so each part must be switched on explicitly."""
    if not values.flag("attn_block_cte_nki_kernel_enabled"):
        return None
    missing = [key for key in CTE_PARTS if not values.flag(key)]
    if values.given.get("attn_kernel_enabled") is False:
        missing.append("attn_kernel_enabled")
    if not missing:
        return None
    why = f"the context attention block needs {', '.join(missing)}, which are off"
    return BrokenRule("attn_block_cte_nki_kernel_enabled", why, f"Set {', '.join(missing)} to true, or remove it.")


def fuse_rope(values: ConfigValues) -> BrokenRule | None:
    if not values.flag("qkv_cte_nki_kernel_fuse_rope"):
        return None
    missing = [key for key in CTE_PARTS[:2] if not values.flag(key)]
    if not missing:
        return None
    why = f"fusing RoPE needs both QKV kernels; not switched on: {' and '.join(missing)}"
    return BrokenRule("qkv_cte_nki_kernel_fuse_rope", why, f"Set {' and '.join(missing)} to true, or remove it.")


def block_kernel_parts(values: ConfigValues) -> BrokenRule | None:
    key = next((key for key in (CACHE_UPDATE, CASCADED) if values.flag(key)), None)
    if values.block_kernel or key is None:
        return None
    why = "it is a part of the token attention block, which is off"
    return BrokenRule(key, why, "Set attn_block_tkg_nki_kernel_enabled too, or remove it.")


def block_kernel_alone(values: ConfigValues) -> BrokenRule | None:
    clash = "flash decoding" if values.flag("flash_decoding_enabled") else "chunked prefill" if values.chunked else None
    if not values.block_kernel or clash is None:
        return None
    why = f"the token attention kernels do not work with {clash}"
    return BrokenRule("attn_block_tkg_nki_kernel_enabled", why, f"Switch the kernel off, or switch off {clash}.")


def transposed_k_cache(values: ConfigValues) -> BrokenRule | None:
    clash = {
        "flash decoding": values.flag("flash_decoding_enabled"),
        "chunked prefill": values.chunked,
        "the block KV layout": values.flag("is_block_kv_layout"),
    }
    names = ", ".join(name for name, on in clash.items() if on)
    if not names or not values.flag("k_cache_transposed"):
        return None
    why = f"a transposed K cache does not work with {names}"
    return BrokenRule("k_cache_transposed", why, f"Remove it, or switch off {names}.")


KERNEL_RULES: Final = (
    ConfigRule("cte-kernel-parts", cte_kernel_parts),
    rule(
        "block-kernel-qkv",
        "attn_block_tkg_nki_kernel_enabled",
        lambda v: v.flag("attn_block_tkg_nki_kernel_enabled") and not v.qkv_kernel,
        "the token attention block needs a QKV kernel",
        "Set qkv_kernel_enabled too.",
    ),
    ConfigRule("block-kernel-parts", block_kernel_parts),
    ConfigRule("block-kernel-alone", block_kernel_alone),
    ConfigRule("fuse-rope", fuse_rope),
    ConfigRule("transposed-k-cache", transposed_k_cache),
    # The kernel updates the cache itself only with cascaded attention (and never on trn1).
    rule(
        "dp-cache-update",
        CACHE_UPDATE,
        lambda v: v.number("attention_dp_degree") > 1 and v.flag(CACHE_UPDATE) and not v.flag(CASCADED),
        "with attention data parallelism the kernel's cache update needs cascaded attention",
        f"Set {CASCADED} too, or remove it.",
    ),
)
CLASS_RULES: Final = SHAPE_RULES + FEATURE_RULES + KERNEL_RULES


def _has_experts(values: ConfigValues) -> bool:
    """Only MoENeuronConfig reads the two objects below. A model that was not read may have experts."""
    text = text_part(values.model)
    return not values.model or number(text, "num_local_experts", "num_experts") > 0 or "ffn_config" in text


def kv_quant_config(values: ConfigValues) -> BrokenRule | None:
    """quantization/quantization_config.py:80. Methods and the data type are Python objects, not JSON."""
    key = next((key for key in values.nested("kv_quant_config") if key != "direct_cast"), None)
    if key is None:
        return None
    why = f"{key[:40]} cannot be given in JSON: a string is not one of its values"
    return BrokenRule("kv_quant_config", why, 'Use {"direct_cast": true}, which stores the cache in FP8.')


def router_config(values: ConfigValues) -> BrokenRule | None:
    """models/config.py:843, modules/moe/moe_configs.py:19, modules/moe/routing.py:49."""
    for key, value in values.nested("router_config").items() if _has_experts(values) else ():
        options = ROUTER_OPTIONS.get(key)
        if options is None:
            return BrokenRule("router_config", f"'{key[:40]}' is not one of its keys", "Use act_fn and dtype.")
        if value not in options and (key == "act_fn" or isinstance(value, str)):
            why = f"'{str(value)[:40]}' is not {'an activation' if key == 'act_fn' else 'a data type'} of a router"
            return BrokenRule("router_config", why, f"Use {' or '.join(options)}.")
    return None


def block_sharding_strategy(values: ConfigValues) -> BrokenRule | None:
    """modules/moe/moe_configs.py:111."""
    strategy = values.nested("blockwise_matmul_config").get("block_sharding_strategy")
    if not isinstance(strategy, str) or strategy in SHARDING or not _has_experts(values):
        return None
    why = f"'{strategy[:40]}' is not a block_sharding_strategy"
    return BrokenRule("blockwise_matmul_config", why, f"Use {' or '.join(SHARDING)}.")


def tensor_replacement(values: ConfigValues) -> BrokenRule | None:
    """models/config.py:1175."""
    replacement = values.get("tensor_replacement_config")
    missing = [key for key in REPLACEMENT if key not in replacement] if isinstance(replacement, dict) else []
    if not missing:
        return None
    return BrokenRule("tensor_replacement_config", f"it has no {', '.join(missing)}", "Give them, or remove it.")


NESTED_RULES: Final = (
    # models/config.py:696.
    rule(
        "quantization-dtype",
        "quantization_dtype",
        lambda v: (
            v.flag("quantized")
            and not v.mlp_quantized
            and (v.text("quantization_dtype") or "").lower() not in QUANTIZED_DTYPES
        ),
        "'{quantization_dtype}' is not a data type of quantized weights",
        f"Use one of {', '.join(QUANTIZED_DTYPES)}.",
    ),
    # models/application_base.py:790. A quantized MLP sets the type itself (models/config.py:577).
    rule(
        "quantization-type",
        "quantization_type",
        lambda v: (
            v.flag("quantized")
            and not v.mlp_quantized
            and (v.text("quantization_type") or "") not in QUANTIZATION_TYPES
        ),
        "the plugin does not quantize with the type '{quantization_type}'",
        f"Use {' or '.join(QUANTIZATION_TYPES)}.",
    ),
    ConfigRule("kv-quant-config", kv_quant_config),
    ConfigRule("router-config", router_config),
    # modules/attention/attention_base.py:103; NxD, modules/moe/model_utils.py:20.
    option("named-options", "ep_dispatch_cc_option", ("AR_AG", "RS_AG", "AG_AR"), "one of its values"),
    option("named-options", "glu_type", ("glu", "swiglu"), "one of its values"),
    ConfigRule("block-sharding-strategy", block_sharding_strategy),
    # models/config.py:353.
    rule(
        "tensor-capture",
        "tensor_capture_config",
        lambda v: (
            isinstance(v.get("tensor_capture_config"), dict)
            and not v.flag("output_logits")
            and v.get("on_device_sampling_config") is None
        ),
        "tensor capture needs sampling on the device",
        "Remove it, or set on_device_sampling to true.",
    ),
    ConfigRule("tensor-replacement", tensor_replacement),
)
