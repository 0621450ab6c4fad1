"""Rules on quantization, speculation, chunked prefill and parallel degrees (NxDI models/config.py, NeuronConfig)."""

from __future__ import annotations

from typing import Final

from handler.neuron.neuron_config.config_values import ConfigValues
from handler.neuron.neuron_config.rule import BrokenRule, ConfigRule


def quantized_without_path(values: ConfigValues) -> BrokenRule | None:
    if not values.flag("quantized") or values.get("quantized_checkpoints_path") is not None:
        return None
    why = "quantized weights are read from a path, and none is given"
    return BrokenRule("quantized_checkpoints_path", why, "Set it to the directory of the quantized checkpoint.")


def quantized_qkv_kernel(values: ConfigValues) -> BrokenRule | None:
    kernel = values.flag("qkv_kernel_enabled") or values.flag("qkv_nki_kernel_enabled")
    if not kernel or not (values.flag("quantized") or values.mlp_quantized) or values.get("modules_to_not_convert"):
        return None
    why = "the QKV kernel with quantized weights needs the list of modules that are not quantized"
    return BrokenRule(
        "modules_to_not_convert", why, "List the modules that stay in bfloat16, such as lm_head and self_attn."
    )


def activation_quantization_type(values: ConfigValues) -> BrokenRule | None:
    kind = values.text("activation_quantization_type")
    if kind is None or kind in ("dynamic", "static"):
        return None
    why = f"'{kind}' is not a type of activation quantization"
    return BrokenRule("activation_quantization_type", why, "Use 'dynamic' or 'static', in lower case.")


def activation_quantization_kernels(values: ConfigValues) -> BrokenRule | None:
    kernels = values.mlp_kernel or values.flag("quantized_mlp_kernel_enabled")
    if values.text("activation_quantization_type") is None or not kernels:
        return None
    why = "activation quantization does not work with the MLP kernels"
    return BrokenRule("activation_quantization_type", why, "Remove it, or switch the MLP kernels off.")


def rmsnorm_quantize(values: ConfigValues) -> BrokenRule | None:
    if not values.flag("rmsnorm_quantize_kernel_enabled") or values.flag("quantized_mlp_kernel_enabled"):
        return None
    why = "the RMSNorm quantization kernel feeds the quantized MLP kernel, which is off"
    return BrokenRule("rmsnorm_quantize_kernel_enabled", why, "Set quantized_mlp_kernel_enabled too, or remove it.")


def full_model_shuffled(values: ConfigValues) -> BrokenRule | None:
    if not values.flag("is_full_model_shuffled"):
        return None
    if values.flag("is_mxfp4_compute") or values.flag("is_eagle_draft"):
        return None
    why = "a fully shuffled model is for MXFP4 compute or an EAGLE draft"
    return BrokenRule("is_full_model_shuffled", why, "Set is_mxfp4_compute too, or remove it.")


def medusa_async(values: ConfigValues) -> BrokenRule | None:
    if not (values.flag("is_medusa") and values.flag("async_mode")):
        return None
    return BrokenRule("async_mode", "Medusa decoding does not work with async mode", "Set async_mode to false.")


def chunked_without_blocks(values: ConfigValues) -> BrokenRule | None:
    if not values.chunked or values.flag("is_block_kv_layout"):
        return None
    why = "chunked prefill needs the block KV layout"
    return BrokenRule("is_block_kv_layout", why, "Set is_block_kv_layout to true, or remove chunked_prefill_config.")


def chunked_batch(values: ConfigValues) -> BrokenRule | None:
    chunked = values.get("chunked_prefill_config")
    if not isinstance(chunked, dict) or chunked.get("tkg_model_enabled", True) is not False:
        return None
    if values.number("batch_size") == 1:
        return None
    why = "chunked prefill without a separate decode graph puts all requests into one sequence"
    return BrokenRule("batch_size", why, "Set batch_size to 1, or leave tkg_model_enabled on.")


def tp_by_cp(values: ConfigValues) -> BrokenRule | None:
    tp, cp = values.number("tp_degree"), values.degree("cp_degree")
    if tp % cp == 0:
        return None
    why = f"tensor parallel degree {tp} is not a multiple of cp_degree {cp}"
    return BrokenRule("cp_degree", why, f"Use a cp_degree that divides {tp}.")


def tp_by_dp(values: ConfigValues) -> BrokenRule | None:
    tp, dp = values.number("tp_degree"), values.degree("attention_dp_degree")
    if tp % dp == 0:
        return None
    why = f"tensor parallel degree {tp} is not a multiple of attention_dp_degree {dp}"
    return BrokenRule("attention_dp_degree", why, f"Use a degree that divides {tp}.")


def batch_by_dp(values: ConfigValues) -> BrokenRule | None:
    batch, dp = values.number("tkg_batch_size"), values.degree("attention_dp_degree")
    if batch % dp == 0:
        return None
    why = f"the decode batch of {batch} is not a multiple of attention_dp_degree {dp}"
    return BrokenRule("attention_dp_degree", why, f"Make max_num_seqs a multiple of {dp}.")


def dp_continuous_batching(values: ConfigValues) -> BrokenRule | None:
    if values.number("attention_dp_degree") <= 1 or values.flag("is_continuous_batching"):
        return None
    why = "attention data parallelism works with continuous batching only"
    return BrokenRule("is_continuous_batching", why, "Use max_num_seqs above 1, or is_continuous_batching true.")


def dp_above_cp(values: ConfigValues) -> BrokenRule | None:
    cp, dp = values.number("cp_degree"), values.number("attention_dp_degree")
    if cp <= 1 or dp <= 1 or (cp >= dp and cp % dp == 0):
        return None
    why = f"attention_dp_degree {dp} is above cp_degree {cp}, or does not divide it"
    return BrokenRule("attention_dp_degree", why, f"Use a degree that divides {cp}.")


def mlp_cp_sequence_parallel(values: ConfigValues) -> BrokenRule | None:
    if values.number("mlp_cp_degree") <= 1 or values.flag("sequence_parallel_enabled"):
        return None
    why = "context parallelism of the MLP needs sequence parallelism"
    return BrokenRule("sequence_parallel_enabled", why, "Set it to true, or leave mlp_cp_degree at 1.")


def strided_context_parallel(values: ConfigValues) -> BrokenRule | None:
    if not values.flag("strided_context_parallel_kernel_enabled") or values.number("cp_degree") > 1:
        return None
    why = "the strided context parallel kernel needs a cp_degree above 1"
    return BrokenRule("strided_context_parallel_kernel_enabled", why, "Raise cp_degree, or leave the kernel off.")


def rs_ag_batch(values: ConfigValues) -> BrokenRule | None:
    tp, batch = values.number("tp_degree"), values.number("tkg_batch_size")
    if values.text("ep_dispatch_cc_option") != "RS_AG" or tp <= batch:
        return None
    why = f"RS_AG does not work with a tensor parallel degree ({tp}) above the decode batch ({batch})"
    return BrokenRule("ep_dispatch_cc_option", why, "Use AR_AG, or raise max_num_seqs.")


FEATURE_RULES: Final = (
    ConfigRule("quantized-without-path", quantized_without_path),
    ConfigRule("quantized-qkv-kernel", quantized_qkv_kernel),
    ConfigRule("activation-quantization-type", activation_quantization_type),
    ConfigRule("activation-quantization-kernels", activation_quantization_kernels),
    ConfigRule("rmsnorm-quantize", rmsnorm_quantize),
    ConfigRule("full-model-shuffled", full_model_shuffled),
    ConfigRule("medusa-async", medusa_async),
    ConfigRule("chunked-without-blocks", chunked_without_blocks),
    ConfigRule("chunked-batch", chunked_batch),
    ConfigRule("tp-by-cp", tp_by_cp),
    ConfigRule("tp-by-dp", tp_by_dp),
    ConfigRule("batch-by-dp", batch_by_dp),
    ConfigRule("dp-continuous-batching", dp_continuous_batching),
    ConfigRule("dp-above-cp", dp_above_cp),
    ConfigRule("mlp-cp-sequence-parallel", mlp_cp_sequence_parallel),
    ConfigRule("strided-context-parallel", strided_context_parallel),
    ConfigRule("rs-ag-batch", rs_ag_batch),
)
