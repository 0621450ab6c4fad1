"""`MemoryShape`: the numbers, from fields and raw NeuronConfig, that decide how much memory a configuration needs."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from handler.config.endpoint_config import EndpointConfig
from handler.json_value import Json
from handler.neuron.checkpoint.model_facts import ModelFacts, number
from handler.neuron.hardware.instance_catalogue import GIB, InstanceType, default_degree, default_lnc
from handler.neuron.lines.blocks import DEFAULT_BLOCK, NATIVE_BLOCK
from handler.neuron.lines.line_registry import find_line
from handler.neuron.lines.native.native_lines import conversions
from handler.neuron.lines.plan_draft import DEFAULT_SEQUENCES, default_length, engines_here
from handler.neuron.neuron_config.model_rules import generated_buckets

WIDTHS = {"float32": 4.0, "bfloat16": 2.0, "float16": 2.0}
# The start of safetensors' data types of one byte.
NARROW: Final = ("F8", "I8", "U8")

# vLLM 0.24's share of the device's memory (config/cache.py), and the native plugin's variables with their defaults.
UTILIZATION: Final = 0.92
CAP_VARIABLE: Final = "VLLM_NEURON_KV_GMU_BUDGET_CAP_FRACTION"
MINIMUM_VARIABLE: Final = "VLLM_NEURON_MIN_KV_BUDGET_GIB"
CAP: Final = 0.3
MINIMUM_GIB: Final = 1.0


@dataclass(frozen=True, slots=True)
class PagedCache:
    """How the native plugin sizes its KV cache: not by sequences, but by what the weights leave (vllm-neuron
    0.24.0.1.1.0, vllm_neuron/vllm/worker/neuron_worker.py, _compute_kv_budget).

    :param utilization: the share of a core's memory that vLLM may use.
    :param cap: the largest share of that for the cache.
    :param minimum: bytes; with less the plugin does not start.
    """

    utilization: float
    cap: float
    minimum: int

    def budget(self, memory: int, weights: int) -> int:
        """The bytes of the cache on a core with so many bytes of memory and of weights."""
        usable = int(memory * self.utilization)
        return max(min(usable - weights, int(usable * self.cap)), 0)


@dataclass(frozen=True, slots=True)
class MemoryShape:
    """Numbers that decide the memory. Lengths are in tokens, widths in bytes.

    :param degree: tensor-parallel degree, in logical cores of all nodes.
    :param attention_degrees: the degrees that attention is sharded by; more than one if a rank holds it twice.
    :param attention_dp: the degree of data-parallel attention. Each way holds its share of the sequences.
    :param graphs: the number of compiled graphs: context and token buckets.
    :param quantized: linear layers take one byte for each parameter, except those in `unquantized`.
    :param cache_tokens: the tokens, of all sequences, that one rank's KV cache can hold.
    :param fixed_tokens: `num_gpu_blocks_override` in tokens. The cache then holds as many, whatever the sequences need;
        0 if it is not given.
    :param mlp_kernel: the kernel of quantized MLPs, which pads weights and repeats scales.
    :param blocks: the KV cache is in blocks. Otherwise each layer holds as much of a sequence as it attends to.
    :param stages: pipeline stages. Each holds its share of the layers.
    :param engines: engines on one host (data parallelism), each of which loads the whole model.
    :param flash_decoding: the ranks of a KV head share a sequence, each with spare tokens.
    :param paged: the native plugin's cache; None on the other lines, whose cache holds all sequences.
    :param platforms: those that the line runs on. Empty: not known.
    """

    degree: int
    lnc: int
    attention_degrees: tuple[int, ...]
    attention_dp: int
    context: int
    context_batch: int
    length: int
    sequences: int
    cache_tokens: int
    width: float
    cache_width: float
    quantized: bool
    unquantized: tuple[str, ...]
    sequence_parallel: bool
    flash_attention: bool
    graphs: int
    mlp_kernel: bool = False
    blocks: bool = False
    fixed_tokens: int = 0
    stages: int = 1
    engines: int = 1
    flash_decoding: bool = False
    paged: PagedCache | None = None
    platforms: tuple[str, ...] = ()


def memory_shape(config: EndpointConfig, facts: ModelFacts, instance: InstanceType) -> MemoryShape:
    """The shape of a configuration. What a plan would choose applies to settings that are not given."""
    raw = _raw(config)
    lnc = lnc_of(config, instance)
    degree = number(raw, "tp_degree") or config.tensor_parallel_size
    degree = max(degree or default_degree(instance, facts.heads, facts.weight_bytes, lnc), 1) * max(
        config.nodes or 1, 1
    )
    length = max(number(raw, "seq_len") or config.max_model_len or default_length(config, facts), 1)
    sequences = number(raw, "kv_cache_batch_size", "tkg_batch_size", "batch_size") or config.max_num_seqs
    sequences = max(sequences or DEFAULT_SEQUENCES, 1)
    context = min(number(raw, "max_context_length") or config.max_context_length or length, length)
    native, line = (config.line or "").startswith("native"), find_line(config.line) if config.line else None
    width = WIDTHS.get((config.dtype or "").removeprefix("torch."), 0.0) or WIDTHS.get(facts.torch_dtype or "", 2.0)
    context_parallel = number(raw, "cp_degree") or 1
    attention_dp = number(raw, "attention_dp_degree") or 1
    sharded = dict.fromkeys((max(degree // context_parallel, 1), max(degree // attention_dp, 1)))
    blocks = native or _in_blocks(config, raw)
    fixed = _fixed_tokens(config, raw, NATIVE_BLOCK if native else DEFAULT_BLOCK) if blocks else 0
    return MemoryShape(
        degree=degree,
        lnc=lnc,
        attention_degrees=tuple(sharded),
        attention_dp=attention_dp,
        context=context,
        context_batch=number(raw, "ctx_batch_size") or config.ctx_batch_size or 1,
        length=length,
        sequences=sequences,
        cache_tokens=fixed or length * (sequences + _spare_sequences(raw, attention_dp)),
        width=width,
        cache_width=1.0 if _fp8_cache(config, raw) else width,
        quantized=_quantized_by_native(config, raw, facts) if native else _quantized_by_nxd(config, raw),
        unquantized=config.modules_to_not_convert or _strings(raw.get("modules_to_not_convert")),
        sequence_parallel=_sequence_parallel(config, raw),
        flash_attention=bool(config.attn_kernel_enabled or raw.get("attn_kernel_enabled")) or _flash(lnc, context),
        graphs=_graphs(config, raw, context, length),
        mlp_kernel=bool(config.quantized_mlp_kernel_enabled or raw.get("quantized_mlp_kernel_enabled")),
        blocks=blocks,
        fixed_tokens=fixed,
        stages=max(number(raw, "pp_degree") or number(config.engine_args, "pipeline_parallel_size") or 1, 1),
        engines=engines_here(config.engine_args),
        flash_decoding=raw.get("flash_decoding_enabled") is True,
        paged=_paged_cache(config) if native else None,
        platforms=line.platforms if line is not None else (),
    )


def _raw(config: EndpointConfig) -> Mapping[str, Json]:
    return {**(config.text_neuron_config or {}), **config.neuron_config}


def lnc_of(config: EndpointConfig, instance: InstanceType) -> int:
    """The configuration's LNC, or the instance's default if it does not support that."""
    lnc = config.logical_nc_config or number(_raw(config), "logical_nc_config", "logical_neuron_cores")
    return lnc if lnc in instance.lnc else default_lnc(instance)


def _sequence_parallel(config: EndpointConfig, raw: Mapping[str, Json]) -> bool:
    """vLLM 0.9.1 switches it on, unless there is a draft model (model_loader/neuronx_distributed.py:605)."""
    value = raw.get("sequence_parallel_enabled", config.sequence_parallel_enabled)
    return config.line == "fork-0.9.1" and config.speculative_model is None if value is None else bool(value)


def _paged_cache(config: EndpointConfig) -> PagedCache:
    share = config.engine_args.get("gpu_memory_utilization")
    return PagedCache(
        float(share) if isinstance(share, int | float) else UTILIZATION,
        _fraction(config.neuron_env.get(CAP_VARIABLE), CAP),
        int(_fraction(config.neuron_env.get(MINIMUM_VARIABLE), MINIMUM_GIB) * GIB),
    )


def _fraction(text: str | None, default: float) -> float:
    """A variable's number. A check reports one that is none."""
    try:
        value = default if text is None else float(text)
    except ValueError:
        return default
    return value if math.isfinite(value) else default


def _quantized_by_nxd(config: EndpointConfig, raw: Mapping[str, Json]) -> bool:
    """The last two convert all linear layers, without `quantized` too (NxDI 0.10, models/model_wrapper.py:1477)."""
    kernel = config.quantized_mlp_kernel_enabled or raw.get("quantized_mlp_kernel_enabled")
    by_setting = config.quantization is not None or raw.get("quantized") is True
    return bool(by_setting or kernel or raw.get("activation_quantization_type"))


def _quantized_by_native(config: EndpointConfig, raw: Mapping[str, Json], facts: ModelFacts) -> bool:
    """The plugin converts weights to what a model has. Otherwise they are as the checkpoint stores them.

    The plan has the weights of gpt-oss converted to bfloat16.
    """
    asked = raw.get("quantization") or (config.quantization or "").lower().replace("bfloat", "bf")
    if asked in conversions(config.line, facts.architectures):
        return asked != "bf16"
    # A checkpoint may quantize its KV cache alone.
    stored = not facts.dtypes or any(dtype.startswith(NARROW) for dtype in facts.dtypes)
    return facts.quantized and stored and facts.model_type != "gpt_oss"


def _fp8_cache(config: EndpointConfig, raw: Mapping[str, Json]) -> bool:
    """A raw `kv_cache_quant` changes the cache on the fork's lines only (NxDI, kvcache/kv_cache_manager.py:145)."""
    alone = raw.get("kv_cache_quant") is True and (config.line or "").startswith("fork")
    native = str(config.engine_args.get("kv_cache_dtype", "")).startswith("fp8")
    return bool(config.kv_cache_quant) or raw.get("kv_quant_config") is not None or alone or native


def _spare_sequences(raw: Mapping[str, Json], attention_dp: int) -> int:
    """With attention data parallelism each way has one sequence for writes without effect (models/config.py:517)."""
    skips = raw.get("attn_block_tkg_nki_kernel_cascaded_attention") is True
    return attention_dp if attention_dp > 1 and not skips else 0


def _in_blocks(config: EndpointConfig, raw: Mapping[str, Json]) -> bool:
    by_key = raw.get("is_prefix_caching") or raw.get("is_block_kv_layout") or raw.get("chunked_prefill_config")
    return bool(config.enable_prefix_caching or config.enable_chunked_prefill or by_key)


def _fixed_tokens(config: EndpointConfig, raw: Mapping[str, Json], default_block: int) -> int:
    """The tokens in the user's number of blocks: vLLM and the plugins allocate all of them."""
    blocks = config.num_gpu_blocks_override or number(raw, "pa_num_blocks")
    return max(blocks, 0) * max(config.block_size or number(raw, "pa_block_size") or default_block, 1)


def _flash(lnc: int, context: int) -> bool:
    """Whether NxD Inference itself uses flash attention (guide "Deploying Llama3.1 405B (Trn2)", Optimized Kernels)."""
    return context >= 256 and context % 256 == 0 if lnc == 2 else context >= 4096


def _graphs(config: EndpointConfig, raw: Mapping[str, Json], context: int, length: int) -> int:
    if config.enable_bucketing is False or raw.get("enable_bucketing") is False:
        return 2
    prefill = config.context_encoding_buckets or raw.get("context_encoding_buckets")
    decode = config.token_generation_buckets or raw.get("token_generation_buckets")
    return _buckets(prefill, context) + _buckets(decode, length)


def _buckets(buckets: object, longest: int) -> int:
    return len(buckets if isinstance(buckets, list | tuple) and buckets else generated_buckets(longest))


def _strings(value: Json) -> tuple[str, ...]:
    return tuple(item for item in value if isinstance(item, str)) if isinstance(value, list) else ()
