"""Quantization, kernels and the KV cache: settings that compile, and then fail or give wrong output."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from handler.config.finding import Finding
from handler.neuron.checks.check_context import CheckContext, error, info, warning

BFLOAT16_KERNELS: Final = ("qkv_kernel_enabled", "mlp_kernel_enabled")
OLDER: Final = ("inf2", "trn1")
KERNEL_FREE_SDK: Final = (2, 29)


def quantized_defaults(case: CheckContext) -> Iterator[Finding]:
    """A raw `quantized` without its data type."""
    if not case.nxd or case.draft.override.get("quantized") is not True:
        return
    missing = [key for key in ("quantization_type", "quantization_dtype") if key not in case.draft.override]
    if missing:
        why = f"{' and '.join(missing)} not given: the plugin takes per_tensor_symmetric and int8"
        yield warning("quantization-defaults", case.key("quantized"), why, f"Set {' and '.join(missing)}.")


def quantized_modules(case: CheckContext) -> Iterator[Finding]:
    values = case.values
    if case.nxd and values.flag("quantized") and not values.get("modules_to_not_convert"):
        why = "every module is taken as quantized"
        fix = "Set modules_to_not_convert if the checkpoint leaves some in bfloat16 (lm_head, say)."
        yield info("all-modules-quantized", case.key("modules_to_not_convert"), why, fix)


def quantization_unset(case: CheckContext) -> Iterator[Finding]:
    """A path without the switch that reads it."""
    values = case.values
    if case.nxd and values.text("quantized_checkpoints_path") is not None and not values.flag("quantized"):
        why = "a quantized checkpoint is named, but quantization is off: the path is ignored"
        yield warning(
            "quantization-off", case.key("quantized_checkpoints_path"), why, "Set quantization to int8 or fp8."
        )


def quantized_mlp(case: CheckContext) -> Iterator[Finding]:
    """The 405B tutorial requires it; NeuronConfig does not raise."""
    values = case.values
    if case.nxd and values.flag("quantized_mlp_kernel_enabled") and not values.mlp_kernel:
        why = "the quantized MLP kernel is a variant of the MLP kernel, which is off"
        yield warning(
            "quantized-mlp-kernel", case.key("quantized_mlp_kernel_enabled"), why, "Set mlp_kernel_enabled too."
        )


def kernel_dtype(case: CheckContext) -> Iterator[Finding]:
    """The QKV and MLP kernels are written for bfloat16 (tutorial "Deploying Llama3.1 405B (Trn2)")."""
    dtype = case.values.text("torch_dtype")
    if not case.nxd or dtype in (None, "bfloat16"):
        return
    for key in BFLOAT16_KERNELS:
        if case.values.flag(key):
            yield error(
                "kernel-dtype", case.key(key), f"the kernel needs bfloat16, not {dtype}", "Set dtype to bfloat16."
            )


def kernels_on_older_platforms(case: CheckContext) -> Iterator[Finding]:
    """NxD Inference dropped NKI kernels on trn1 and inf2 in Neuron 2.29 (release notes)."""
    instance = case.instance
    if not case.nxd or instance is None or instance.platform not in OLDER or case.line.sdk < KERNEL_FREE_SDK:
        return
    for key, value in case.values.given.items():
        if key.endswith("_kernel_enabled") and value is True:
            sdk = ".".join(str(part) for part in case.line.sdk)
            why = f"{case.line.title} has Neuron {sdk}; from 2.29 on there are no NKI kernels on {instance.platform}"
            yield warning("kernels-dropped", case.key(key), why, "Leave it out, or use nxdi-0.13 (Neuron 2.28).")


def automatic_flash_attention(case: CheckContext) -> Iterator[Finding]:
    """`attn_kernel_enabled: false` does not switch the kernel off where the length suits it."""
    if case.nxd and case.values.given.get("attn_kernel_enabled") is False:
        why = "NxD Inference uses flash attention at lengths that suit it even where attn_kernel_enabled is false"
        yield info("flash-attention", case.key("attn_kernel_enabled"), why, "Leave it out.")


def prefix_caching_batch(case: CheckContext) -> Iterator[Finding]:
    """Known issue of the plugin (README of vllm-project/vllm-neuron)."""
    values = case.values
    if case.nxd and values.flag("is_prefix_caching") and values.number("batch_size") == 1:
        why = "prefix caching with one sequence gives wrong output"
        fix = "Use max_num_seqs above 1, or set enable_prefix_caching to false."
        yield error("prefix-caching-batch", case.key("is_prefix_caching"), why, fix)


GRAPH: Final = (
    quantized_defaults,
    quantized_modules,
    quantization_unset,
    quantized_mlp,
    kernel_dtype,
    kernels_on_older_platforms,
    automatic_flash_attention,
    prefix_caching_batch,
)
