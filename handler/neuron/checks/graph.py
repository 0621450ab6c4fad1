"""Checks quantization, kernels, the KV cache and sampling: settings that compile, and then fail or are ignored."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from handler.config.finding import Finding
from handler.json_value import mapping
from handler.neuron.checkpoint.model_facts import stored_quantization
from handler.neuron.checks.check_context import CheckContext, error, info, warning
from handler.neuron.sampling_limits import KEY, MOST

BFLOAT16_KERNELS: Final = ("qkv_kernel_enabled", "mlp_kernel_enabled")
OLDER: Final = ("inf2", "trn1")
KERNEL_FREE_SDK: Final = (2, 29)


def quantized_defaults(context: CheckContext) -> Iterator[Finding]:
    """A raw `quantized` key without its type and data type."""
    if not context.nxd or context.draft.override.get("quantized") is not True:
        return
    missing = [key for key in ("quantization_type", "quantization_dtype") if key not in context.draft.override]
    if missing:
        why = f"without {' and '.join(missing)} the plugin uses per_tensor_symmetric and int8"
        yield warning("quantization-defaults", context.key("quantized"), why, f"Set {' and '.join(missing)}.")


def quantized_modules(context: CheckContext) -> Iterator[Finding]:
    values = context.values
    if context.nxd and values.flag("quantized") and not values.get("modules_to_not_convert"):
        why = "NxD Inference takes every module as quantized"
        fix = "If the checkpoint keeps some modules in bfloat16 (such as lm_head), name them in modules_to_not_convert."
        yield info("all-modules-quantized", context.key("modules_to_not_convert"), why, fix)


def quantization_unset(context: CheckContext) -> Iterator[Finding]:
    """A path of quantized weights, without the setting that makes NxD Inference read it."""
    values = context.values
    if context.nxd and values.text("quantized_checkpoints_path") is not None and not values.flag("quantized"):
        why = "quantization is off, so the path of the quantized checkpoint is ignored"
        yield warning(
            "quantization-off", context.key("quantized_checkpoints_path"), why, "Set quantization to int8 or fp8."
        )


def kv_cache_quant(context: CheckContext) -> Iterator[Finding]:
    """NxDI 0.10, modules/kvcache/kv_cache_manager.py:145: only `kv_quant_config` changes the cache."""
    values = context.values
    if context.plugin and values.flag("kv_cache_quant") and values.get("kv_quant_config") is None:
        why = "since SDK 2.28 it changes compiler flags only, and the KV cache stays as it is"
        fix = 'Set kv_quant_config to {"direct_cast": true} too, or use the setting kv_cache_quant instead.'
        yield warning("kv-cache-quant", context.key("kv_cache_quant"), why, fix)


def kv_cache_dtype(context: CheckContext) -> Iterator[Finding]:
    """The cache's type is NxD Inference's. vLLM's argument does not reach it (plugin 0.5.0, worker/; vLLM 0.9.1,
    model_loader/neuronx_distributed.py)."""
    given = context.draft.args.get("kv_cache_dtype")
    if context.nxd and given not in (None, "auto"):
        why = f"NxD Inference ignores kv_cache_dtype '{str(given)[:20]}': the KV cache has the model's data type"
        yield error("kv-cache-dtype", "kv_cache_dtype", why, "Use kv_cache_quant for FP8, or remove it.")


def quantized_checkpoint(context: CheckContext) -> Iterator[Finding]:
    """NxD Inference does not read the quantization of a config.json (guide "vLLM User Guide", Quantization)."""
    facts = context.facts
    if not context.nxd or facts is None or not facts.quantized or context.values.flag("quantized"):
        return
    stored = stored_quantization(facts.config) or {}
    blocks = stored.get("quant_method") == "fp8" and isinstance(stored.get("weight_block_size"), list)
    if blocks and context.plugin and context.architectures[:1] == ("Qwen3MoeForCausalLM",) and facts.local:
        # models/qwen3_moe/modeling_qwen3_moe.py:100, maybe_dequantize_layer
        why = f"NxD Inference converts the FP8 weights to {context.values.text('torch_dtype')} when it loads them"
        fix = "Expect twice the memory. If the start fails, use the unquantized checkpoint."
        yield warning("quantized-checkpoint", "model", why, fix)
    elif facts.model_type != "gpt_oss":  # NxD Inference unpacks its MXFP4 weights itself
        why = "config.json says that the weights are quantized, and NxD Inference does not read that"
        fix = "Set quantization and quantized_checkpoints_path, or use the unquantized checkpoint."
        yield error("quantized-checkpoint", "model", why, fix)


def quantized_mlp(context: CheckContext) -> Iterator[Finding]:
    """The 405B tutorial requires both kernels. NeuronConfig does not raise."""
    values = context.values
    if context.nxd and values.flag("quantized_mlp_kernel_enabled") and not values.mlp_kernel:
        why = "the quantized MLP kernel needs the MLP kernel, which is off"
        yield warning(
            "quantized-mlp-kernel", context.key("quantized_mlp_kernel_enabled"), why, "Set mlp_kernel_enabled too."
        )


def kernel_dtype(context: CheckContext) -> Iterator[Finding]:
    """The QKV and MLP kernels are written for bfloat16 (tutorial "Deploying Llama3.1 405B (Trn2)")."""
    dtype = context.values.text("torch_dtype")
    if not context.nxd or dtype in (None, "bfloat16"):
        return
    for key in BFLOAT16_KERNELS:
        if context.values.flag(key):
            yield error(
                "kernel-dtype", context.key(key), f"the kernel needs bfloat16, not {dtype}", "Set dtype to bfloat16."
            )


def fused_qkv(context: CheckContext) -> Iterator[Finding]:
    """The sharding looks for fused weights (NxDI, modules/attention/gqa.py:682), which these classes do not make from
    those of the checkpoint (models/mistral, models/mixtral)."""
    if context.plugin and context.values.flag("fused_qkv") and context.architectures[:1] in NEVER_FUSED:
        why = f"NxD Inference does not fuse the weights of {context.architectures[0]}, and would not find them"
        yield error("fused-qkv", context.key("fused_qkv"), why, "Remove it, and the QKV kernels.")


NEVER_FUSED: Final = (("MistralForCausalLM",), ("MixtralForCausalLM",))


def kernels_on_older_platforms(context: CheckContext) -> Iterator[Finding]:
    """NxD Inference removed NKI kernels on trn1 and inf2 in Neuron 2.29 (release notes)."""
    instance = context.instance
    if not context.nxd or instance is None or instance.platform not in OLDER or context.line.sdk < KERNEL_FREE_SDK:
        return
    for key, value in context.values.given.items():
        if key.endswith("_kernel_enabled") and value is True:
            sdk = ".".join(str(part) for part in context.line.sdk)
            why = f"{context.line.name} has Neuron {sdk}; since 2.29 there are no NKI kernels on {instance.platform}"
            yield warning("kernels-dropped", context.key(key), why, "Remove it.")


def automatic_flash_attention(context: CheckContext) -> Iterator[Finding]:
    """`attn_kernel_enabled: false` does not switch the kernel off if the length is suitable."""
    if context.nxd and context.values.given.get("attn_kernel_enabled") is False:
        why = "NxD Inference uses flash attention at suitable lengths even if attn_kernel_enabled is false"
        yield info("flash-attention", context.key("attn_kernel_enabled"), why, "Remove it.")


def prefix_caching_batch(context: CheckContext) -> Iterator[Finding]:
    """Known issue of the plugin (README of vllm-project/vllm-neuron)."""
    values = context.values
    if context.nxd and values.flag("is_prefix_caching") and values.number("batch_size") == 1:
        why = "prefix caching with max_num_seqs 1 gives wrong output (known issue of the plugin)"
        fix = "Use max_num_seqs above 1, or set enable_prefix_caching to false."
        yield error("prefix-caching-batch", context.key("is_prefix_caching"), why, fix)


GRAPH: Final = (
    quantized_defaults,
    quantized_modules,
    quantization_unset,
    kv_cache_quant,
    kv_cache_dtype,
    quantized_checkpoint,
    quantized_mlp,
    kernel_dtype,
    fused_qkv,
    kernels_on_older_platforms,
    automatic_flash_attention,
    prefix_caching_batch,
)


def on_device(context: CheckContext) -> Iterator[Finding]:
    """Parameters that on-device sampling silently ignores."""
    sampling = context.values.given.get(KEY)
    if not context.nxd or not isinstance(sampling, dict):
        return
    if context.config.on_device_sampling is None and KEY not in context.draft.raw:
        why = "sampling on the device uses only temperature, top_p and top_k, and does not enforce structured output"
        fix = "For penalties, min_p or structured output set on_device_sampling to false."
        yield info("on-device-sampling", "on_device_sampling", why, fix)
    if KEY in context.draft.raw and sampling.get("dynamic") is not True:
        why = "without 'dynamic' all requests are sampled alike: their temperature, top_p and top_k are ignored"
        fix = 'Add "dynamic": true to on_device_sampling_config.'
        finding = info if context.values.speculates else warning
        yield finding("static-sampling", context.key(KEY), why, fix)


def global_topk(context: CheckContext) -> Iterator[Finding]:
    """top_k is clamped to the smaller of global_topk and 256."""
    value = mapping(context.values.given.get(KEY)).get("global_topk")
    plain = context.config.global_topk is not None
    setting = "global_topk" if plain else f"{context.key(KEY)}.global_topk"
    if context.nxd and isinstance(value, int) and value > MOST:
        why = f"the device samples from at most {MOST} tokens; a larger top_k is clamped, whatever global_topk is"
        yield warning("global-topk", setting, why, f"Set it to {MOST} or less.")
    if plain and context.config.on_device_sampling is False:
        why = "global_topk has an effect only with on-device sampling, which is off"
        yield warning("global-topk-unused", setting, why, "Remove it.")


def speculation_on_cpu(context: CheckContext) -> Iterator[Finding]:
    """Fused speculation checks its tokens on the device (NxDI models/model_base.py asserts it)."""
    if context.nxd and context.values.speculates and KEY in context.values.given and context.values.given[KEY] is None:
        why = "speculation needs sampling on the device, and the settings choose CPU sampling"
        fix = "Set on_device_sampling to true, or remove the draft model."
        yield error("needs-on-device-sampling", context.key(KEY), why, fix)


SAMPLING: Final = (on_device, global_topk, speculation_on_cpu)
