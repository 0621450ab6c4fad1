"""What the native plugin reads of vLLM's configuration and of the environment, as plain values."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

TOKENS = 2048  # vLLM 0.24's own number of tokens in a step, outside of its offline class
SEQUENCES = 256
ASYNC = "stand_in_async_scheduling"  # what was asked for, in additional_config: the CPU turns it off


@dataclass(frozen=True, slots=True)
class NativeConfiguration:
    """As the plugin sees it, before it sets anything itself.

    :param args: engine arguments that no other field holds.
    :param model: the checkpoint's config.json.
    :param target: trn2 or trn3.
    """

    max_model_len: int
    max_num_batched_tokens: int = TOKENS
    max_num_seqs: int = SEQUENCES
    prefix_caching: bool = True
    chunked_prefill: bool = True
    async_scheduling: bool = True
    tensor_parallel_size: int = 1
    block_size: int = 32
    additional: Mapping[str, Any] = field(default_factory=dict)
    args: Mapping[str, Any] = field(default_factory=dict)
    model: Mapping[str, Any] = field(default_factory=dict)
    environment: Mapping[str, str] = field(default_factory=dict)
    target: str = "trn2"

    @property
    def neuron(self) -> Mapping[str, Any]:
        return self.additional.get("neuron_config") or {}

    @property
    def on_device(self) -> bool:
        """An absent key is the device; only null is the CPU."""
        return "on_device_sampling_config" not in self.neuron or self.neuron["on_device_sampling_config"] is not None

    @property
    def cpu_compile(self) -> bool:
        """Graphs are compiled on a host without devices, and none runs."""
        return self.environment.get("VLLM_NEURON_CPU_COMPILE") == "1"

    @property
    def transfer(self) -> Mapping[str, Any]:
        return self.args.get("kv_transfer_config") or {}

    @classmethod
    def of_arguments(
        cls, args: Mapping[str, Any], model: Mapping[str, Any], environment: Mapping[str, str], target: str = "trn2"
    ) -> NativeConfiguration:
        """From engine arguments, with vLLM 0.24's defaults for those that are absent."""
        names = {
            "max_num_batched_tokens": "max_num_batched_tokens",
            "max_num_seqs": "max_num_seqs",
            "enable_prefix_caching": "prefix_caching",
            "enable_chunked_prefill": "chunked_prefill",
            "async_scheduling": "async_scheduling",
            "tensor_parallel_size": "tensor_parallel_size",
            "block_size": "block_size",
        }
        own = {field: args[name] for name, field in names.items() if args.get(name) is not None}
        overrides = args.get("hf_overrides")
        return cls(
            max_model_len=args.get("max_model_len") or model.get("max_position_embeddings") or TOKENS,
            additional=args.get("additional_config") or {},
            args={name: value for name, value in args.items() if value is not None},
            model={**model, **(overrides if isinstance(overrides, dict) else {})},
            environment=environment,
            target=target,
            **own,
        )

    @classmethod
    def of(cls, vllm_config: Any, environment: Mapping[str, str]) -> NativeConfiguration:
        """From the configuration that vLLM itself has built."""
        model, cache = vllm_config.model_config, vllm_config.cache_config
        scheduler, parallel = vllm_config.scheduler_config, vllm_config.parallel_config
        speculative, transfer = vllm_config.speculative_config, vllm_config.kv_transfer_config
        additional = dict(vllm_config.additional_config or {})
        asynchronous = additional.pop(ASYNC, scheduler.async_scheduling)
        args = {
            "enforce_eager": model.enforce_eager,
            "scheduling_policy": scheduler.policy,
            "pipeline_parallel_size": parallel.pipeline_parallel_size,
            "data_parallel_size": parallel.data_parallel_size,
            "enable_expert_parallel": parallel.enable_expert_parallel,
            "decode_context_parallel_size": parallel.decode_context_parallel_size,
            "cp_kv_cache_interleave_size": parallel.cp_kv_cache_interleave_size,
            "long_prefill_token_threshold": scheduler.long_prefill_token_threshold,
            "enable_lora": vllm_config.lora_config is not None,
            "enable_sleep_mode": model.enable_sleep_mode,
            "kv_cache_dtype": cache.cache_dtype,
            "speculative_config": None if speculative is None else {"method": speculative.method},
            "kv_transfer_config": None
            if transfer is None
            else {name: getattr(transfer, name) for name in ("kv_connector", "kv_role", "kv_buffer_device")},
        }
        return cls(
            max_model_len=model.max_model_len,
            max_num_batched_tokens=scheduler.max_num_batched_tokens,
            max_num_seqs=scheduler.max_num_seqs,
            prefix_caching=bool(cache.enable_prefix_caching),
            chunked_prefill=bool(scheduler.enable_chunked_prefill),
            async_scheduling=bool(asynchronous),
            tensor_parallel_size=parallel.tensor_parallel_size,
            block_size=cache.block_size or 32,
            additional=additional,
            args={name: value for name, value in args.items() if value is not None},
            model=model.hf_config.to_dict(),
            environment=environment,
            target=environment.get("NEURON_PLATFORM_TARGET_OVERRIDE", "trn2"),
        )
