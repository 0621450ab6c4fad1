"""The settings of NxD Inference that the native plugin does not have, each with its reason or its consequence.

Sources: AWS Neuron documentation, vLLM Neuron, "How to migrate from NxD Inference to vLLM Neuron" (15 July 2026), the
tables of guide 1, steps 1 and 3; "Checkpoint Loading Framework Capability"; vllm-neuron 0.24.0.1.1.0,
vllm_neuron/model/neuron_config.py (the keys that are read) and vllm_neuron/vllm/platform.py (the arguments).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from handler.neuron.neuron_config.keys import COMPILER, KERNELS
from model_packaging.migration.migrated_setting import Outcome

Reason = tuple[Outcome, str]


def _automatic(names: str, note: str) -> dict[str, Reason]:
    return dict.fromkeys(names.split(), (Outcome.AUTOMATIC, note))


def _unavailable(names: str, note: str) -> dict[str, Reason]:
    return dict.fromkeys(names.split(), (Outcome.UNAVAILABLE, note))


_KERNELS = "the plugin chooses its kernels"
_CACHE = "the plugin sizes the KV cache by the free device memory"
_ADAPTERS = "the plugin has no LoRA: requests that name an adapter are rejected. Merge the adapter into the weights"
_WEIGHTS = (
    "the plugin quantizes no weights and does not read NxD Inference's checkpoints: give a ModelOpt FP8 checkpoint, or "
    "the weights are in the checkpoint's own type and take more memory"
)
_XLA = "a setting of torch-xla, which the native compile route does not use"

# Fields of the configuration that are left out.
FIELDS: Final[Mapping[str, Reason]] = {
    **_automatic("attn_kernel_enabled qkv_kernel_enabled mlp_kernel_enabled fused_qkv", _KERNELS),
    **_automatic("quantized_mlp_kernel_enabled", _KERNELS),
    **_automatic("sequence_parallel_enabled", "sequence parallelism is on by default"),
    **_automatic("block_size num_gpu_blocks_override", _CACHE),
    **_automatic("save_sharded_checkpoint", "each rank reads its slices of the safetensors files"),
    **_unavailable("ctx_batch_size", "a step prefills one prompt"),
    **_unavailable("max_context_length", "a prompt may be as long as max_model_len"),
    **_unavailable("quantization_type quantized_checkpoints_path", _WEIGHTS),
    **_unavailable("skip_warmup", "the warm-up compiles the graphs, so a start always has one"),
    **_unavailable("enable_lora lora_modules max_loras max_lora_rank lora_target_modules", _ADAPTERS),
    **_unavailable("nodes", "an engine has one node: choose a larger instance or a smaller model"),
    **_unavailable("compiled_artifacts", "graphs of NxD Inference are not read: the first start compiles"),
}
# Keys of the NeuronConfig without a field. Any other key is not available.
KEYS: Final[Mapping[str, Reason]] = {
    **_automatic(" ".join(KERNELS), _KERNELS),
    **_automatic(" ".join(COMPILER), "the plugin sets the compiler's options"),
    **_automatic("blockwise_matmul_config disable_argmax_kernel attn_cls qk_layernorm glu_mlp glu_type", _KERNELS),
    **_automatic("is_continuous_batching", "batches are always continuous"),
    **_automatic("is_block_kv_layout pa_num_blocks pa_block_size k_cache_transposed disable_kv_cache_tiling", _CACHE),
    **_automatic("world_size local_ranks_size start_rank_id", "follows from tensor_parallel_size"),
    **_automatic("n_positions n_active_tokens max_length max_new_tokens", "follows from max_model_len"),
    **_automatic("max_batch_size tkg_batch_size kv_cache_batch_size spec_batch_size", "follows from max_num_seqs"),
    **_automatic("padding_side overrides_torch_dtype cast_type rpl_reduce_dtype attention_dtype", "follows from dtype"),
    **_automatic("skip_sharding", FIELDS["save_sharded_checkpoint"][1]),
    **_automatic("enable_fused_speculation", "draft and target are always one step"),
    **_unavailable("lora_config lora_ckpt_json target_modules", _ADAPTERS),
    **_unavailable("kv_quant_config", "FP8 is the only quantized cache: set kv_cache_quant"),
    **_unavailable("pp_degree", "the plugin has no pipeline parallelism"),
    **_unavailable("cp_degree mlp_cp_degree", "prefill has no context parallelism: a long prompt takes longer"),
    **_unavailable("attention_dp_degree", "the plugin has attention_dp_size, on decode servers only"),
    **_unavailable("quantization_scale_dtype quantization_block_size quantization_block_axis", _WEIGHTS),
    **_unavailable("activation_quantization_type quantize_clamp_bound draft_model_modules_to_not_convert", _WEIGHTS),
}
# Keys of the NeuronConfig's sampling. Each request has its own parameters, with the model's defaults.
SAMPLING: Final[Mapping[str, Reason]] = {
    **_automatic("dynamic do_sample top_k top_p temperature", "each request has its own, with the model's defaults"),
    **_automatic("top_k_kernel_enabled", _KERNELS),
}
# vLLM's arguments that a Neuron deployment no longer needs.
ARGUMENTS: Final[Mapping[str, Reason]] = {
    **_automatic("device use_v2_block_manager speculative_max_model_len", "the plugin finds the hardware by itself"),
}
# Variables, by the start of their names.
VARIABLES: Final[Mapping[str, Reason]] = {
    **_automatic("VLLM_NEURON_FRAMEWORK", "the plugin registers itself with vLLM"),
    **_automatic("NEURON_COMPILE_CACHE_URL BASE_COMPILE_WORK_DIR", "the artifact store holds the plugin's graphs"),
    **_automatic("XLA_ UNSAFE_ NEURON_FUSE_ NEURON_COMBINE_KV_ NEURON_CUSTOM_SILU", _XLA),
    **_unavailable("NXD_CPU_MODE", "VLLM_NEURON_CPU_MODE=1 is the plugin's own mode without a device"),
    **_unavailable("NEURON_RT_VISIBLE_CORES", "a start fails with it: NEURON_VISIBLE_DEVICES selects the cores"),
}
