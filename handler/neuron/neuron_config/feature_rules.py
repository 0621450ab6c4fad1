"""Rules on quantization, speculation, chunked prefill and parallel degrees (NxDI models/config.py, NeuronConfig)."""

from __future__ import annotations

from typing import Final

from handler.neuron.neuron_config.config_values import Values
from handler.neuron.neuron_config.rule import Broken, Rule


def quantized_without_path(values: Values) -> Broken | None:
    if not values.flag("quantized") or values.get("quantized_checkpoints_path") is not None:
        return None
    why = "quantized weights are read from a path, and none is given"
    return Broken("quantized_checkpoints_path", why, "Name the directory of the quantized checkpoint.")


def quantized_qkv_kernel(values: Values) -> Broken | None:
    kernel = values.flag("qkv_kernel_enabled") or values.flag("qkv_nki_kernel_enabled")
    if not kernel or not (values.flag("quantized") or values.mlp_quantized) or values.get("modules_to_not_convert"):
        return None
    why = "the QKV kernel with quantized weights needs to know which modules are not quantized"
    return Broken("modules_to_not_convert", why, "List the modules left in bfloat16, such as lm_head and self_attn.")


def activation_quantization_type(values: Values) -> Broken | None:
    kind = values.text("activation_quantization_type")
    if kind is None or kind in ("dynamic", "static"):
        return None
    why = f"'{kind}' is no activation quantization type"
    return Broken("activation_quantization_type", why, "Use 'dynamic' or 'static', in lower case.")


def activation_quantization_kernels(values: Values) -> Broken | None:
    kernels = values.mlp_kernel or values.flag("quantized_mlp_kernel_enabled")
    if values.text("activation_quantization_type") is None or not kernels:
        return None
    why = "native activation quantization does not work with the MLP kernels"
    return Broken("activation_quantization_type", why, "Leave it out, or switch the MLP kernels off.")


def rmsnorm_quantize(values: Values) -> Broken | None:
    if not values.flag("rmsnorm_quantize_kernel_enabled") or values.flag("quantized_mlp_kernel_enabled"):
        return None
    why = "the RMSNorm quantization kernel feeds the quantized MLP kernel, which is off"
    return Broken("rmsnorm_quantize_kernel_enabled", why, "Set quantized_mlp_kernel_enabled too, or leave it out.")


def full_model_shuffled(values: Values) -> Broken | None:
    if not values.flag("is_full_model_shuffled"):
        return None
    if values.flag("is_mxfp4_compute") or values.flag("is_eagle_draft"):
        return None
    why = "a fully shuffled model is for MXFP4 compute or an EAGLE draft"
    return Broken("is_full_model_shuffled", why, "Set is_mxfp4_compute too, or leave it out.")


def medusa_async(values: Values) -> Broken | None:
    if not (values.flag("is_medusa") and values.flag("async_mode")):
        return None
    return Broken("async_mode", "Medusa decoding does not work with async mode", "Set async_mode to false.")


def chunked_without_blocks(values: Values) -> Broken | None:
    if not values.chunked or values.flag("is_block_kv_layout"):
        return None
    why = "chunked prefill needs the block KV layout"
    return Broken("is_block_kv_layout", why, "Set is_block_kv_layout to true, or leave chunked_prefill_config out.")


def chunked_batch(values: Values) -> Broken | None:
    chunked = values.get("chunked_prefill_config")
    if not isinstance(chunked, dict) or chunked.get("tkg_model_enabled", True) is not False:
        return None
    if values.number("batch_size") == 1:
        return None
    why = "chunked prefill without a decode graph of its own puts all requests into one sequence"
    return Broken("batch_size", why, "Set batch_size to 1, or leave tkg_model_enabled on.")


def tp_by_cp(values: Values) -> Broken | None:
    tp, cp = values.number("tp_degree"), values.degree("cp_degree")
    if tp % cp == 0:
        return None
    why = f"tensor parallel degree {tp} is no multiple of cp_degree {cp}"
    return Broken("cp_degree", why, f"Use a cp_degree that divides {tp}.")


def tp_by_dp(values: Values) -> Broken | None:
    tp, dp = values.number("tp_degree"), values.degree("attention_dp_degree")
    if tp % dp == 0:
        return None
    why = f"tensor parallel degree {tp} is no multiple of attention_dp_degree {dp}"
    return Broken("attention_dp_degree", why, f"Use a degree that divides {tp}.")


def batch_by_dp(values: Values) -> Broken | None:
    batch, dp = values.number("tkg_batch_size"), values.degree("attention_dp_degree")
    if batch % dp == 0:
        return None
    why = f"the decode batch of {batch} is no multiple of attention_dp_degree {dp}"
    return Broken("attention_dp_degree", why, f"Make max_num_seqs a multiple of {dp}.")


def dp_continuous_batching(values: Values) -> Broken | None:
    if values.number("attention_dp_degree") <= 1 or values.flag("is_continuous_batching"):
        return None
    why = "attention data parallelism works with continuous batching only"
    return Broken("is_continuous_batching", why, "Use max_num_seqs above 1, or is_continuous_batching true.")


def dp_above_cp(values: Values) -> Broken | None:
    cp, dp = values.number("cp_degree"), values.number("attention_dp_degree")
    if cp <= 1 or dp <= 1 or (cp >= dp and cp % dp == 0):
        return None
    why = f"attention_dp_degree {dp} is above cp_degree {cp}, or does not divide it"
    return Broken("attention_dp_degree", why, f"Use a degree that divides {cp}.")


def mlp_cp_sequence_parallel(values: Values) -> Broken | None:
    if values.number("mlp_cp_degree") <= 1 or values.flag("sequence_parallel_enabled"):
        return None
    why = "context parallelism of the MLP needs sequence parallelism"
    return Broken("sequence_parallel_enabled", why, "Set it to true, or leave mlp_cp_degree at 1.")


def strided_context_parallel(values: Values) -> Broken | None:
    if not values.flag("strided_context_parallel_kernel_enabled") or values.number("cp_degree") > 1:
        return None
    why = "the strided context parallel kernel needs a cp_degree above 1"
    return Broken("strided_context_parallel_kernel_enabled", why, "Raise cp_degree, or leave the kernel off.")


def rs_ag_batch(values: Values) -> Broken | None:
    tp, batch = values.number("tp_degree"), values.number("tkg_batch_size")
    if values.text("ep_dispatch_cc_option") != "RS_AG" or tp <= batch:
        return None
    why = f"RS_AG does not work with a tensor parallel degree ({tp}) above the decode batch ({batch})"
    return Broken("ep_dispatch_cc_option", why, "Use AR_AG, or raise max_num_seqs.")


FEATURE_RULES: Final = (
    Rule("quantized-without-path", quantized_without_path),
    Rule("quantized-qkv-kernel", quantized_qkv_kernel),
    Rule("activation-quantization-type", activation_quantization_type),
    Rule("activation-quantization-kernels", activation_quantization_kernels),
    Rule("rmsnorm-quantize", rmsnorm_quantize),
    Rule("full-model-shuffled", full_model_shuffled),
    Rule("medusa-async", medusa_async),
    Rule("chunked-without-blocks", chunked_without_blocks),
    Rule("chunked-batch", chunked_batch),
    Rule("tp-by-cp", tp_by_cp),
    Rule("tp-by-dp", tp_by_dp),
    Rule("batch-by-dp", batch_by_dp),
    Rule("dp-continuous-batching", dp_continuous_batching),
    Rule("dp-above-cp", dp_above_cp),
    Rule("mlp-cp-sequence-parallel", mlp_cp_sequence_parallel),
    Rule("strided-context-parallel", strided_context_parallel),
    Rule("rs-ag-batch", rs_ag_batch),
)
