"""Settings for the native plugin as users type them: environments of an endpoint, at random but with a seed."""

from __future__ import annotations

import json
import random
from collections.abc import Iterator
from typing import Any

SHAPE = {"hidden_size": 4096, "num_hidden_layers": 32, "intermediate_size": 14336, "vocab_size": 128256}
HEADS = {"num_attention_heads": 32, "num_key_value_heads": 8, "head_dim": 128}
LLAMA: dict[str, Any] = {
    **SHAPE,
    **HEADS,
    "architectures": ["LlamaForCausalLM"],
    "model_type": "llama",
    "max_position_embeddings": 131072,
    "torch_dtype": "bfloat16",
}
WEIGHTS = {"num_bits": 8, "type": "float", "symmetric": True, "strategy": "channel", "dynamic": False}
COMPRESSED = {
    "quant_method": "compressed-tensors",
    "format": "float-quantized",
    "ignore": [],
    "config_groups": {"group_0": {"targets": ["Linear"], "weights": WEIGHTS}},
}
# The config.json of a model, by what is particular about it. Half of the settings are for the plain one.
MODELS: dict[str, dict[str, Any]] = {
    "llama": LLAMA,
    "short": {**LLAMA, "max_position_embeddings": 2048},
    "shortest": {**LLAMA, "max_position_embeddings": 256},
    "qwen3": {**LLAMA, "architectures": ["Qwen3ForCausalLM"], "model_type": "qwen3"},
    "qwen2": {**LLAMA, "architectures": ["Qwen2ForCausalLM"], "model_type": "qwen2"},
    "gpt-oss": {
        **LLAMA,
        "architectures": ["GptOssForCausalLM"],
        "model_type": "gpt_oss",
        "num_local_experts": 32,
        "quantization_config": {"quant_method": "mxfp4"},
    },
    "awq": {**LLAMA, "quantization_config": {"quant_method": "awq"}},
    "compressed": {**LLAMA, "quantization_config": COMPRESSED},
}
LENGTHS = ("512", "1024", "2048", "4096", "8192", "16384", "32768", "200000")
BUCKETS = ("512", "2048", "4096", "128,512,2048", "1024,4096", "4096,1024", "512,1024,2048,4096,8192")
BOOLEANS = ("true", "false")
NEURON: dict[str, tuple[Any, ...]] = {
    "num_batched_tokens_buckets": ([512], [2048], [128, 4096], [4096, 128], [], None),
    "num_seqs_buckets": ([8], [1, 8], [1, 4, 16, 32], [8, 1]),
    "kv_segment_size_buckets": ([512], [2048], [8192], [512, 1024], [600], None),
    "decode_context_length_buckets": ([512], [1024, 2048], [1000], [2048, 1024]),
    "on_device_sampling_config": (None, {}, {"all_greedy": True}, {"max_top_k": 64}, {"topk": 5}, {"all_greedy": "no"}),
    "enable_structured_outputs": (True, False, "true"),
    "ep_degree": (1, 4, 0),
    "attention_dp_size": (1, 2),
    "lm_head_dp_size": (2, -1),
    "quantization": ("bf16", "mxfp4", "mxfp8"),
    "fp8_packed_kv": (True, "yes"),
    "max_logprobs": (5, -1, "many"),
    "num_seq_buckets": ([8],),
    "tp_degree": (8,),
}
VARIABLES: dict[str, tuple[str, ...]] = {
    "SM_VLLM_MAX_MODEL_LEN": LENGTHS,
    "SM_VLLM_MAX_NUM_BATCHED_TOKENS": (*LENGTHS, "1000", "16"),
    "SM_VLLM_MAX_NUM_SEQS": ("1", "8", "32", "256", "4096"),
    "SM_VLLM_TENSOR_PARALLEL_SIZE": ("1", "4", "8", "16", "24", "32", "64", "128"),
    "SM_VLLM_BLOCK_SIZE": ("16", "32", "128"),
    "SM_VLLM_ENABLE_PREFIX_CACHING": BOOLEANS,
    "SM_VLLM_ENABLE_CHUNKED_PREFILL": BOOLEANS,
    "SM_VLLM_ASYNC_SCHEDULING": BOOLEANS,
    "SM_VLLM_ENFORCE_EAGER": BOOLEANS,
    "SM_VLLM_ENABLE_LORA": BOOLEANS,
    "SM_VLLM_ENABLE_SLEEP_MODE": BOOLEANS,
    "SM_VLLM_ENABLE_EXPERT_PARALLEL": BOOLEANS,
    "SM_VLLM_SCHEDULING_POLICY": ("fcfs", "priority"),
    "SM_VLLM_PIPELINE_PARALLEL_SIZE": ("1", "2"),
    "SM_VLLM_DATA_PARALLEL_SIZE": ("1", "2"),
    "SM_VLLM_DECODE_CONTEXT_PARALLEL_SIZE": ("1", "2", "4"),
    "SM_VLLM_DISTRIBUTED_EXECUTOR_BACKEND": ("mp", "ray", "uni"),
    "SM_VLLM_KV_CACHE_DTYPE": ("auto", "fp8"),
    "SM_VLLM_KV_OFFLOADING_SIZE": ("4",),
    "SM_VLLM_SPECULATIVE_CONFIG": (
        '{"method": "eagle3", "model": "/opt/draft", "num_speculative_tokens": 3}',
        '{"method": "ngram", "num_speculative_tokens": 3}',
        '{"method": "eagle", "model": "/opt/draft", "num_speculative_tokens": 3}',
    ),
    "SM_VLLM_HF_OVERRIDES": ('{"quantization_config": {}}',),
    "ENDPOINT_CONTEXT_ENCODING_BUCKETS": BUCKETS,
    "ENDPOINT_TOKEN_GENERATION_BUCKETS": BUCKETS,
    "ENDPOINT_ENABLE_BUCKETING": BOOLEANS,
    "ENDPOINT_ON_DEVICE_SAMPLING": BOOLEANS,
    "ENDPOINT_STRUCTURED_OUTPUTS": BOOLEANS,
    "ENDPOINT_LOGPROBS": BOOLEANS,
    "ENDPOINT_ASYNC_MODE": BOOLEANS,
    "ENDPOINT_KV_CACHE_QUANT": BOOLEANS,
    "ENDPOINT_QUANTIZATION": ("fp8", "int8", "mxfp4", "mxfp8"),
    "ENDPOINT_DISAGGREGATION": ("prefill", "decode"),
    "ENDPOINT_LOGICAL_NC_CONFIG": ("1", "2"),
    "NEURON_RT_VISIBLE_CORES": ("0-7",),
    "NEURON_VISIBLE_DEVICES": ("0-7", "0-31", "0,1"),
    "VLLM_USE_V2_MODEL_RUNNER": ("0", "1"),
    "VLLM_ALLOW_LONG_MAX_MODEL_LEN": ("1",),
}
LINES = ("native-0.24", "native-0.29")


def single_settings() -> Iterator[tuple[str, dict[str, str]]]:
    """Each value of each setting alone."""
    common = {"ENDPOINT_LINE": LINES[0], "ENDPOINT_INSTANCE": "ml.trn2.48xlarge"}
    for name, values in VARIABLES.items():
        for value in values:
            yield "llama", {name: value, **common}
    for key, choices in NEURON.items():
        for choice in choices:
            section = json.dumps({"neuron_config": {key: choice}})
            yield "llama", {"SM_VLLM_ADDITIONAL_CONFIG": section, **common}
    for model in MODELS:
        yield model, common


def typed_settings(count: int, seed: int) -> Iterator[tuple[str, dict[str, str]]]:
    """The name of a model and the environment of an endpoint, `count` times. The same for the same seed."""
    chosen = random.Random(seed)
    for _ in range(count):
        model = "llama" if chosen.random() < 0.5 else chosen.choice(sorted(MODELS))
        names = chosen.sample(sorted(VARIABLES), chosen.randint(0, 4))
        environment = {name: chosen.choice(VARIABLES[name]) for name in names}
        keys = chosen.sample(sorted(NEURON), chosen.choice((0, 0, 1, 2)))
        if keys:
            section = {key: chosen.choice(NEURON[key]) for key in keys}
            environment["SM_VLLM_ADDITIONAL_CONFIG"] = json.dumps({"neuron_config": section})
        environment["ENDPOINT_LINE"] = chosen.choice(LINES)
        environment["ENDPOINT_INSTANCE"] = "ml.trn2.48xlarge"
        yield model, environment
