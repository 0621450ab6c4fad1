"""Rules on attention kernels (NxDI models/config.py, NeuronConfig.__init__)."""

from __future__ import annotations

from typing import Final

from handler.neuron.neuron_config.config_values import ConfigValues
from handler.neuron.neuron_config.rule import BrokenRule, ConfigRule

CTE_PARTS: Final = ("qkv_kernel_enabled", "qkv_nki_kernel_enabled", "out_proj_kernel_enabled")


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


def block_kernel_qkv(values: ConfigValues) -> BrokenRule | None:
    if not values.flag("attn_block_tkg_nki_kernel_enabled"):
        return None
    if values.flag("qkv_kernel_enabled") or values.flag("qkv_nki_kernel_enabled"):
        return None
    why = "the token attention block needs a QKV kernel"
    return BrokenRule("attn_block_tkg_nki_kernel_enabled", why, "Set qkv_kernel_enabled too.")


def block_kernel_parts(values: ConfigValues) -> BrokenRule | None:
    if values.block_kernel:
        return None
    for key in ("attn_block_tkg_nki_kernel_cache_update", "attn_block_tkg_nki_kernel_cascaded_attention"):
        if values.flag(key):
            why = "it is a part of the token attention block, which is off"
            return BrokenRule(key, why, "Set attn_block_tkg_nki_kernel_enabled too, or remove it.")
    return None


def block_kernel_alone(values: ConfigValues) -> BrokenRule | None:
    if not values.block_kernel:
        return None
    clash = "flash decoding" if values.flag("flash_decoding_enabled") else "chunked prefill" if values.chunked else None
    if clash is None:
        return None
    why = f"the token attention kernels do not work with {clash}"
    return BrokenRule("attn_block_tkg_nki_kernel_enabled", why, f"Switch the kernel off, or switch off {clash}.")


def fuse_rope(values: ConfigValues) -> BrokenRule | None:
    if not values.flag("qkv_cte_nki_kernel_fuse_rope"):
        return None
    missing = [key for key in CTE_PARTS[:2] if not values.flag(key)]
    if not missing:
        return None
    why = f"fusing RoPE needs both QKV kernels; not switched on: {' and '.join(missing)}"
    return BrokenRule("qkv_cte_nki_kernel_fuse_rope", why, f"Set {' and '.join(missing)} to true, or remove it.")


def transposed_k_cache(values: ConfigValues) -> BrokenRule | None:
    if not values.flag("k_cache_transposed"):
        return None
    clash = {
        "flash decoding": values.flag("flash_decoding_enabled"),
        "chunked prefill": values.chunked,
        "the block KV layout": values.flag("is_block_kv_layout"),
    }
    names = [name for name, on in clash.items() if on]
    if not names:
        return None
    why = f"a transposed K cache does not work with {', '.join(names)}"
    return BrokenRule("k_cache_transposed", why, f"Remove it, or switch off {', '.join(names)}.")


def dp_cache_update(values: ConfigValues) -> BrokenRule | None:
    """The kernel updates the cache itself only with cascaded attention (and never on trn1)."""
    if values.number("attention_dp_degree") <= 1 or not values.flag("attn_block_tkg_nki_kernel_cache_update"):
        return None
    if values.flag("attn_block_tkg_nki_kernel_cascaded_attention"):
        return None
    why = "with attention data parallelism the kernel's cache update needs cascaded attention"
    fix = "Set attn_block_tkg_nki_kernel_cascaded_attention too, or remove it."
    return BrokenRule("attn_block_tkg_nki_kernel_cache_update", why, fix)


KERNEL_RULES: Final = (
    ConfigRule("cte-kernel-parts", cte_kernel_parts),
    ConfigRule("block-kernel-qkv", block_kernel_qkv),
    ConfigRule("block-kernel-parts", block_kernel_parts),
    ConfigRule("block-kernel-alone", block_kernel_alone),
    ConfigRule("fuse-rope", fuse_rope),
    ConfigRule("transposed-k-cache", transposed_k_cache),
    ConfigRule("dp-cache-update", dp_cache_update),
)
