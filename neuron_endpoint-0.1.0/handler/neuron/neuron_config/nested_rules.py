"""Rules on quantization types, and on the configurations inside NeuronConfig.

Sources: NxDI 0.10 (models/config.py) and NxD (quantization/quantization_config.py, modules/moe/moe_configs.py).
"""

from __future__ import annotations

from typing import Final

from handler.neuron.checkpoint.model_config import number, text_part
from handler.neuron.neuron_config.config_values import ConfigValues
from handler.neuron.neuron_config.rule import BrokenRule, ConfigRule

# NxD, quantization/quantization_config.py:100, QuantizedDtype.
QUANTIZED_DTYPES: Final = ("int8", "f8e4m3", "f8e4m3fn", "f8e5m2", "f4e2m1fn_x4", "f8e4m3fn_x4", "f8e5m2_x4")
# NxDI, models/application_base.py:776 to :790. The plugin always quantizes there before it compiles.
QUANTIZATION_TYPES: Final = ("per_tensor_symmetric", "per_channel_symmetric")
ROUTER_DTYPES: Final = ("float32", "float16", "bfloat16")
ACTIVATIONS: Final = ("softmax", "sigmoid")
OPTIONS: Final = {"ep_dispatch_cc_option": ("AR_AG", "RS_AG", "AG_AR"), "glu_type": ("glu", "swiglu")}
SHARDING: Final = ("HI_LO", "PING_PONG")
REPLACEMENT: Final = ("ref_dir", "neuron_dir", "tf_map", "neuron_config")


def quantization_dtype(values: ConfigValues) -> BrokenRule | None:
    """models/config.py:696."""
    given = values.text("quantization_dtype") or ""
    if not values.flag("quantized") or values.mlp_quantized or given.lower() in QUANTIZED_DTYPES:
        return None
    why = f"'{given[:40]}' is not a data type of quantized weights"
    return BrokenRule("quantization_dtype", why, f"Use one of {', '.join(QUANTIZED_DTYPES)}.")


def quantization_type(values: ConfigValues) -> BrokenRule | None:
    """models/application_base.py:790. A quantized MLP sets the type itself (models/config.py:577)."""
    given = values.text("quantization_type") or ""
    if not values.flag("quantized") or values.mlp_quantized or given in QUANTIZATION_TYPES:
        return None
    why = f"the plugin does not quantize with the type '{given[:40]}'"
    return BrokenRule("quantization_type", why, f"Use {' or '.join(QUANTIZATION_TYPES)}.")


def kv_quant_config(values: ConfigValues) -> BrokenRule | None:
    """quantization/quantization_config.py:80. Methods and the data type are Python objects, not JSON."""
    given = values.get("kv_quant_config")
    key = next((key for key in given if key != "direct_cast"), None) if isinstance(given, dict) else None
    if key is None:
        return None
    why = f"{key[:40]} cannot be given in JSON: a string is not one of its values"
    return BrokenRule("kv_quant_config", why, 'Use {"direct_cast": true}, which stores the cache in FP8.')


def _has_experts(values: ConfigValues) -> bool:
    """Only MoENeuronConfig reads the two objects below. A model that was not read may have experts."""
    text = text_part(values.model)
    return not values.model or number(text, "num_local_experts", "num_experts") > 0 or "ffn_config" in text


def router_config(values: ConfigValues) -> BrokenRule | None:
    """models/config.py:843, modules/moe/moe_configs.py:19, modules/moe/routing.py:49."""
    given = values.get("router_config")
    if not isinstance(given, dict) or not _has_experts(values):
        return None
    unknown = [key for key in given if key not in ("act_fn", "dtype")]
    dtype = given.get("dtype")
    if unknown:
        return BrokenRule("router_config", f"'{unknown[0][:40]}' is not one of its keys", "Use act_fn and dtype.")
    act = given.get("act_fn", ACTIVATIONS[0])
    if act not in ACTIVATIONS:
        why = f"'{str(act)[:40]}' is not an activation of a router"
        return BrokenRule("router_config", why, f"Use {' or '.join(ACTIVATIONS)}.")
    if isinstance(dtype, str) and dtype not in ROUTER_DTYPES:
        why = f"'{dtype[:40]}' is not a data type of a router"
        return BrokenRule("router_config", why, f"Use one of {', '.join(ROUTER_DTYPES)}.")
    return None


def named_options(values: ConfigValues) -> BrokenRule | None:
    """modules/attention/attention_base.py:103; NxD, modules/moe/model_utils.py:20."""
    for key, names in OPTIONS.items():
        given = values.text(key)
        if given is not None and given not in names:
            return BrokenRule(key, f"'{given[:40]}' is not one of its values", f"Use {', '.join(names)}.")
    return None


def block_sharding_strategy(values: ConfigValues) -> BrokenRule | None:
    """modules/moe/moe_configs.py:111."""
    given = values.get("blockwise_matmul_config")
    strategy = given.get("block_sharding_strategy") if isinstance(given, dict) else None
    if not isinstance(strategy, str) or strategy in SHARDING or not _has_experts(values):
        return None
    why = f"'{strategy[:40]}' is not a block_sharding_strategy"
    return BrokenRule("blockwise_matmul_config", why, f"Use {' or '.join(SHARDING)}.")


def tensor_capture(values: ConfigValues) -> BrokenRule | None:
    """models/config.py:353."""
    captures = isinstance(values.get("tensor_capture_config"), dict) and not values.flag("output_logits")
    if not captures or values.get("on_device_sampling_config") is not None:
        return None
    why = "tensor capture needs sampling on the device"
    return BrokenRule("tensor_capture_config", why, "Remove it, or set on_device_sampling to true.")


def tensor_replacement(values: ConfigValues) -> BrokenRule | None:
    """models/config.py:1175."""
    given = values.get("tensor_replacement_config")
    missing = [key for key in REPLACEMENT if key not in given] if isinstance(given, dict) else []
    if not missing:
        return None
    return BrokenRule("tensor_replacement_config", f"it has no {', '.join(missing)}", "Give them, or remove it.")


NESTED_RULES: Final = (
    ConfigRule("quantization-dtype", quantization_dtype),
    ConfigRule("quantization-type", quantization_type),
    ConfigRule("kv-quant-config", kv_quant_config),
    ConfigRule("router-config", router_config),
    ConfigRule("named-options", named_options),
    ConfigRule("block-sharding-strategy", block_sharding_strategy),
    ConfigRule("tensor-capture", tensor_capture),
    ConfigRule("tensor-replacement", tensor_replacement),
)
