"""`ModelFacts`: the shape of a model, from its JSON files and safetensors headers."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from handler.json_value import Json


@dataclass(frozen=True, slots=True)
class ModelFacts:
    """The shape of a checkpoint. A number that config.json does not have is 0.

    :param where: a directory, an `s3://` prefix or a hub id.
    :param local: the model is a directory on this machine.
    :param config: the whole config.json, also of a multimodal model.
    :param model_type: `llama`, `qwen3_moe` ...
    :param parameters: the number of parameters, from the headers; None if no header was read.
    :param weight_bytes: the bytes of all stored tensors.
    :param dtypes: bytes by safetensors data type (`BF16`, `F8_E4M3`); empty if no header was read.
    :param lm_head: it has a tensor `lm_head.weight`; None if the names of the tensors are not known.
    :param experts: the experts of each mixture-of-experts layer; 0 for a dense model.
    :param expert_intermediate_size: the width of one expert. `intermediate_size` is the width of a dense layer or a
        shared expert.
    :param exported: neuron_config.json of a model that optimum-neuron has exported; empty for any other.
    """

    where: str
    local: bool
    config: Mapping[str, Json]
    model_type: str
    architectures: tuple[str, ...]
    hidden_size: int
    layers: int
    heads: int
    kv_heads: int
    head_dim: int
    vocab_size: int
    intermediate_size: int
    max_position_embeddings: int | None
    tied_embeddings: bool
    torch_dtype: str | None
    parameters: int | None
    weight_bytes: int | None
    dtypes: Mapping[str, int]
    lm_head: bool | None = None
    experts: int = 0
    experts_per_token: int = 0
    expert_intermediate_size: int = 0
    exported: Mapping[str, Json] = field(default_factory=dict)

    @property
    def quantized(self) -> bool:
        """Whether the weights are quantized, by config.json."""
        parts = (self.config, *(part for part in self.config.values() if isinstance(part, dict)))
        return any("quantization_config" in part or "compression_config" in part for part in parts)
