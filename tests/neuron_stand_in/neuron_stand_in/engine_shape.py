"""What the plugin reads of vLLM's configuration, as plain values."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any


@dataclass(frozen=True, slots=True)
class EngineShape:
    """After the platform has forced its values. `hf_config` is the model's config.json as transformers has it."""

    model: str
    dtype: str = "bfloat16"
    tensor_parallel_size: int = 1
    max_model_len: int = 1024
    max_num_seqs: int = 32
    max_num_batched_tokens: int = 131072
    block_size: int = 1024
    num_gpu_blocks_override: int | None = None
    prefix_caching: bool = False
    chunked_prefill: bool = False
    speculation: Mapping[str, Any] | None = None
    lora: bool = False
    hf_config: Mapping[str, Any] = field(default_factory=dict)

    @classmethod
    def of(cls, vllm_config: Any) -> EngineShape:
        model, cache, scheduler = vllm_config.model_config, vllm_config.cache_config, vllm_config.scheduler_config
        speculative = vllm_config.speculative_config
        draft = getattr(speculative, "draft_model_config", None)
        return cls(
            model=str(model.model),
            dtype=str(model.dtype).removeprefix("torch."),
            tensor_parallel_size=vllm_config.parallel_config.tensor_parallel_size,
            max_model_len=model.max_model_len,
            max_num_seqs=scheduler.max_num_seqs,
            max_num_batched_tokens=scheduler.max_num_batched_tokens,
            block_size=cache.block_size,
            num_gpu_blocks_override=cache.num_gpu_blocks_override,
            prefix_caching=bool(cache.enable_prefix_caching),
            chunked_prefill=bool(scheduler.enable_chunked_prefill),
            speculation=None
            if speculative is None
            else {
                "method": speculative.method,
                "num_speculative_tokens": speculative.num_speculative_tokens,
                "model": None if draft is None else draft.model,
            },
            lora=vllm_config.lora_config is not None,
            hf_config=model.hf_config.to_dict(),
        )
