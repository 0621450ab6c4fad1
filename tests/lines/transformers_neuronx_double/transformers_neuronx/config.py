"""A double of `transformers_neuronx.config`: the classes that vLLM's loader builds, with the fields it gives them.

Interface: AWS Neuron documentation, "Transformers NeuronX Developer Guide" (NeuronConfig) and "... for Continuous
Batching" (ContinuousBatchingConfig).
"""

from dataclasses import dataclass, field
from typing import Any


@dataclass
class ContinuousBatchingConfig:
    """The KV cache has a line for each of these sequences."""

    batch_size_for_shared_caches: int


@dataclass
class GenerationConfig:
    """Sampling on the device. Lists have a value for each line of the KV cache."""

    max_length: int
    do_sample: bool = False
    per_batch_line: bool = False
    top_k: Any = 50
    top_p: Any = 1.0
    temperature: Any = 1.0
    dynamic: bool = False
    global_top_k: int | None = None


@dataclass
class QuantizationConfig:
    """INT8 weights. This double computes with the weights as they are."""

    quant_dtype: str
    dequant_dtype: str
    quantize_method: str = "vector_dynamic"


@dataclass
class KVCacheQuantizationConfig:
    """An INT8 KV cache. This double's has the model's type."""

    quant_dtype: str = "s8"
    dequant_dtype: str = "bf16"
    quantize_method: str = "direct_cast"


@dataclass
class SparseAttnConfig:
    """Sparse attention. This double's is dense."""

    skip_masking_decode: bool = False
    sparse_mask_dict: dict[int, Any] = field(default_factory=dict)


class NeuronConfig:
    """How a model is compiled. Any keyword of the real class becomes an attribute."""

    def __init__(self, **keys: Any) -> None:
        self.continuous_batching: ContinuousBatchingConfig | None = None
        self.on_device_generation: GenerationConfig | None = None
        vars(self).update(keys)
