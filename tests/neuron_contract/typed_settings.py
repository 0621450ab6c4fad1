"""Settings for the native plugin as users type them: environments of an endpoint, at random but with a seed."""

from __future__ import annotations

import json
import random
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

from handler.config.vllm_argument_table import known
from handler.config.vllm_verdicts import VERDICTS

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
    "linear": {**LLAMA, "rope_scaling": {"type": "linear", "factor": 4.0}},
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
GROUPS, THIRDS = {"sampling_dp_degree": 4}, {"sampling_dp_degree": 3}
NEURON: dict[str, tuple[Any, ...]] = {
    "num_batched_tokens_buckets": ([512], [2048], [128, 4096], [4096, 128], [], None),
    "num_seqs_buckets": ([8], [1, 8], [1, 4, 16, 32], [8, 1]),
    "kv_segment_size_buckets": ([512], [2048], [8192], [512, 1024], [600], None),
    "decode_context_length_buckets": ([512], [1024, 2048], [1000], [2048, 1024]),
    "on_device_sampling_config": (
        None,
        {},
        {"all_greedy": True},
        {"max_top_k": 64},
        {"topk": 5},
        {"all_greedy": "no"},
        GROUPS,
        THIRDS,
    ),
    "enable_structured_outputs": (True, False, "true"),
    "ep_degree": (1, 4, 0),
    "attention_dp_size": (1, 2, 3),
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
    "SM_VLLM_DATA_PARALLEL_SIZE": ("1", "2", "4"),
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
    "NEURON_VISIBLE_DEVICES": ("0-7", "0-15", "0-31", "0,1"),
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


# The search: any argument that a version of vLLM has, as an environment or an endpoint.yaml says it.
TEXTS = ("auto", "fp8", "bfloat16", "awq", "torch", "mp", "ray", "pooling", "none", "/opt/x", "1", "word")
NUMBERS = (-2, -1, 0, 1, 2, 4, 5, 8, 32, 64, 100, 1024, 8192)
# What a search does not ask: names of the model, of other hosts, and what fails or not by what is on a machine.
UNASKED = frozenset(
    (
        *("model", "tokenizer", "hf_config_path", "trust_remote_code", "additional_config", "hf_overrides"),
        *("worker_cls", "worker_extension_cls", "logits_processors", "scheduler_cls", "reasoning_parser_plugin"),
        *("spec_model", "enable_lora", "lora_modules", "hf_token", "revision", "code_revision", "tokenizer_revision"),
        *("nnodes", "node_rank", "numa_bind", "numa_bind_nodes", "numa_bind_cpus", "headless"),
        *("data_parallel_address", "data_parallel_rpc_port", "master_addr", "master_port", "pylogging_config_file"),
        *("data_parallel_size_local", "data_parallel_rank"),  # with engines that other hosts have
    )
)
NXDI: dict[str, tuple[Any, ...]] = {
    "context_encoding_buckets": ([128, 512], [512, 128], [8192]),
    "token_generation_buckets": ([512], [1024]),
    "enable_bucketing": (True, False),
    "on_device_sampling_config": (None, {"dynamic": True}, {"global_top_k": 5}),
    "cp_degree": (1, 2, 3),
    "attention_dp_degree": (1, 2),
    "sequence_parallel_enabled": (True, False),
    "fused_qkv": (True,),
    "qkv_kernel_enabled": (True, False),
    "quantized": (True, False),
    "torch_dtype": ("float16", "float7"),
    "attention_dtype": ("bfloat16", "float16"),
    "is_medusa": (True,),
    "k_cache_transposed": (True,),
    "tp_degre": (8,),
    "pa_num_blocks": (64,),
}
COMMON = (
    *("SM_VLLM_MAX_MODEL_LEN", "SM_VLLM_MAX_NUM_SEQS", "SM_VLLM_TENSOR_PARALLEL_SIZE", "SM_VLLM_BLOCK_SIZE"),
    *("SM_VLLM_ENABLE_PREFIX_CACHING", "SM_VLLM_KV_CACHE_DTYPE"),
)


@dataclass(frozen=True, slots=True)
class Typed:
    """A configuration: variables, and a document beside them if there is one."""

    model: str
    environment: dict[str, str]
    document: dict[str, Any] | None = None

    def arguments(self) -> Iterator[tuple[str, Any]]:
        """vLLM's own arguments that are texts or numbers, and the speculation, as they were typed."""
        for name, value in self.environment.items():
            argument = known().get(name.removeprefix("SM_VLLM_").lower())
            if name.startswith("SM_VLLM_") and argument is not None and argument.kind in ("str", "int", "float"):
                yield argument.name, value
            elif argument is not None and argument.name == "speculative_config":
                yield argument.name, json.loads(value)
        for name, value in (self.document or {}).get("engine_args", {}).items():
            if known()[name].kind in ("str", "int", "float") or name == "speculative_config":
                yield name, value


def searched(line: str, version: str, count: int, seed: int) -> Iterator[Typed]:
    """`count` configurations for a line. The same for the same seed."""
    chosen = random.Random(seed)
    native, cpu = line.startswith("native"), line == "cpu"
    # On a CPU a plan says nothing of a quantization, which `check` looks up among the names that a version has, nor of
    # swap space, which depends on the machine.
    unasked = UNASKED | {"quantization", "swap_space"} if cpu else UNASKED
    names = [name for name in sorted(known()) if version in known()[name].versions and name not in unasked]
    models = sorted(MODELS) if native else ["llama", "short", "qwen3", "qwen2"]
    for _ in range(count):
        model = "llama" if chosen.random() < 0.5 else chosen.choice(models)
        pool = sorted(VARIABLES) if native else COMMON
        environment = {name: chosen.choice(VARIABLES[name]) for name in chosen.sample(pool, chosen.randint(0, 2))}
        keys = chosen.sample(sorted(NEURON if native else NXDI), 0 if cpu else chosen.choice((0, 0, 1)))
        arguments = {name: _value(chosen, version, name) for name in chosen.sample(names, chosen.randint(1, 2))}
        if keys:
            section = {key: chosen.choice((NEURON if native else NXDI)[key]) for key in keys}
            arguments["additional_config"] = {"neuron_config" if native else "override_neuron_config": section}
        common = {"ENDPOINT_LINE": line, **({} if cpu else {"ENDPOINT_INSTANCE": "ml.trn2.48xlarge"})}
        if chosen.random() < 0.5:
            yield Typed(model, {**environment, **common}, {"engine_args": arguments})
        else:
            texts = {name: value if isinstance(value, str) else json.dumps(value) for name, value in arguments.items()}
            given = {f"SM_VLLM_{name.upper()}": text for name, text in texts.items()}
            yield Typed(model, {**given, **environment, **common})


@lru_cache(maxsize=1)
def _tables(version: str) -> Mapping[str, Any]:
    tables: dict[str, Any] = json.loads((VERDICTS / f"{version}.json").read_text())
    return {**tables["neuron"], **tables["cpu"]}


def _value(chosen: random.Random, version: str, name: str) -> Any:
    argument = known()[name]
    kind = argument.item if argument.kind == "list" else argument.kind
    choices = argument.by_version[version]
    value: Any
    if choices and chosen.random() < 0.9:
        value = chosen.choice(choices)
    elif kind == "bool":
        value = chosen.random() < 0.5
    elif kind in ("int", "float"):
        value = (
            chosen.choice(NUMBERS) if kind == "int" or chosen.random() < 0.5 else chosen.choice((0.1, 0.5, 0.95, 1.5))
        )
    elif kind == "json":
        keys = [key for key in _tables(version).get(name, {}).get("keys", ()) if key not in UNASKED]
        key = chosen.choice(keys) if keys and chosen.random() < 0.85 else "misspelled"
        value = {key: chosen.choice((True, False, *NUMBERS, *TEXTS))} if chosen.random() < 0.9 else {}
    else:
        value = chosen.choice(TEXTS)
    return [value] if argument.kind == "list" else value
