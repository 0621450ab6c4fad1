"""Random settings of the kind that people write, by a seed."""

from __future__ import annotations

import random
from typing import Any

MODELS = ("meta-llama/Llama-3.1-8B-Instruct", "meta-llama/Llama-3.3-70B-Instruct", "Qwen/Qwen3-32B", "Qwen/Qwen3-8B")
INSTANCES = ("ml.trn2.48xlarge", "ml.trn1.32xlarge", "ml.inf2.48xlarge")
FLAGS = (
    *("enable_prefix_caching", "enable_bucketing", "fused_qkv", "qkv_kernel_enabled", "mlp_kernel_enabled"),
    *("attn_kernel_enabled", "sequence_parallel_enabled", "async_mode", "skip_warmup", "save_sharded_checkpoint"),
    *("on_device_sampling", "kv_cache_quant"),
)
RAW: dict[str, tuple[Any, ...]] = {
    "cp_degree": (1, 2, 4, 8),
    "attention_dp_degree": (1, 2, 4),
    "cc_pipeline_tiling_factor": (1, 2),
    "k_cache_transposed": (True, False),
    "attn_block_tkg_nki_kernel_enabled": (True,),
    "attn_block_tkg_nki_kernel_cache_update": (True,),
    "qkv_nki_kernel_enabled": (True,),
    "flash_decoding_enabled": (True,),
    "token_generation_batches": ([1, 2], [4]),
    "is_continuous_batching": (True,),
    "vocab_parallel": (True,),
    "cast_type": ("config", "as-declared"),
    "attention_dtype": ("float32", "bfloat16"),
    "rpl_reduce_dtype": ("float32",),
    "activation_quantization_type": ("dynamic",),
    "modules_to_not_convert": (["lm_head"],),
    "windowed_context_encoding_size": (1024,),
    "ep_dispatch_cc_option": ("AR_AG", "RS_AG", "AG_AR"),
    "scratchpad_page_size": (1024, "1024"),
}


def random_settings(seed: str) -> tuple[str, str, dict[str, Any]]:
    """A model, an instance and the fields of an endpoint's configuration."""
    draw = random.Random(seed)
    length = draw.choice((512, 1000, 2048, 4096, 8192, 16384))
    settings: dict[str, Any] = {
        "max_model_len": length,
        "max_num_seqs": draw.choice((1, 2, 4, 8, 16)),
        "tensor_parallel_size": draw.choice((1, 2, 4, 8, 16, 24, 32, 64)),
        "dtype": draw.choice(("bfloat16", "float16", "auto")),
    }
    settings |= {flag: draw.random() < 0.7 for flag in draw.sample(FLAGS, draw.randint(0, 5))}
    settings["neuron_config"] = {key: draw.choice(RAW[key]) for key in draw.sample(sorted(RAW), draw.randint(0, 3))}
    if draw.random() < 0.3:
        settings["max_context_length"] = draw.choice((length, length // 2))
    if draw.random() < 0.3:
        settings["context_encoding_buckets"] = (256, settings.get("max_context_length", length))
    if draw.random() < 0.3:
        settings["token_generation_buckets"] = (length // 2, length)
    if draw.random() < 0.2:
        draft = "meta-llama/Llama-3.2-1B-Instruct"
        settings |= {"speculation": "draft_model", "speculative_model": draft, "num_speculative_tokens": 4}
    return draw.choice(MODELS), draw.choice(INSTANCES), settings
