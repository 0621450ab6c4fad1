"""What a model says of itself, in its JSON files and its safetensors headers; no weight is ever read."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from handler.json_value import Json


@dataclass(frozen=True, slots=True)
class ModelFacts:
    """A checkpoint's shape; a number that config.json does not say is 0.

    :param where: directory, `s3://` prefix or hub id.
    :param local: it is a directory on this machine.
    :param config: config.json as it stands (of the text model's wrapper for a multimodal one).
    :param model_type: `llama`, `qwen3_moe` ...
    :param parameters: number of parameters, from the headers; None where there are none to read.
    :param weight_bytes: bytes of all tensors as stored.
    :param dtypes: bytes by safetensors dtype (`BF16`, `F8_E4M3`); empty where no header was read.
    :param experts: experts of each mixture-of-experts layer; 0 for a dense model.
    :param expert_intermediate_size: width of one expert; `intermediate_size` is that of a dense layer or shared expert.
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
    experts: int = 0
    experts_per_token: int = 0
    expert_intermediate_size: int = 0

    @property
    def quantized(self) -> bool:
        """config.json says that the weights are quantized."""
        parts = (self.config, *(part for part in self.config.values() if isinstance(part, dict)))
        return any("quantization_config" in part or "compression_config" in part for part in parts)
