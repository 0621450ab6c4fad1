"""`ModelFacts`: the shape of a model, from its config.json. Models have different names for the same numbers."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from handler.json_value import Json, mapping

# Keys of the language model's part in a multimodal model's config.json.
TEXT_PARTS = ("text_config", "llm_config", "language_config", "thinker_config")
# Where a configuration says how weights are quantized.
QUANTIZED = ("quantization_config", "compression_config")
# vLLM takes the shortest of these, unless there is a model_max_length (model_arch_config_convertor.py).
LENGTHS = (
    *("max_position_embeddings", "n_positions", "max_seq_len", "seq_length", "max_target_positions"),
    *("max_sequence_length", "max_seq_length", "seq_len"),
)
# Kinds of rotary scaling whose factor max_position_embeddings already holds.
COUNTED = ("su", "longrope", "llama3")
# No number of a model is as large. JSON may hold Infinity, and 1e308.
LARGEST = 2**40
# Model types that tie embeddings by default (transformers, configuration_gemma*.py).
TIED_TYPES = ("gemma", "gemma2", "gemma3", "gemma3_text")


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
        return any(part.get(key) is not None for part in parts for key in QUANTIZED)

    @property
    def rotary_type(self) -> str:
        """How rotary embeddings are scaled for longer contexts: `llama3`, `yarn` ... `default`: they are not."""
        text = text_part(self.config)
        rope = mapping(text.get("rope_scaling") or text.get("rope_parameters"))
        return str(rope.get("rope_type", rope.get("type", "default")))

    @property
    def longest(self) -> int | None:
        """The longest max_model_len that vLLM takes for it (config.py, _get_and_verify_max_len); None if unknown."""
        text = text_part(self.config)
        if self.max_position_embeddings is None:
            return None
        given = (value for name in LENGTHS if (value := number(text, name)))
        positions = number(text, "model_max_length") or min((self.max_position_embeddings, *given))
        # transformers 5 names it rope_parameters, which may hold an object for each kind of layer.
        rope = text.get("rope_scaling") or text.get("rope_parameters")
        layers = [part for part in rope.values() if isinstance(part, dict)] if isinstance(rope, dict) else []
        parts: list[Json] = [*layers] or [rope]
        scaled = positions if "gemma3" in self.model_type else max(_scaled(part, positions) for part in parts)
        return max(scaled, positions)


def _scaled(rope: Json, positions: int) -> int:
    """The length of a rotary embedding, with its scaling."""
    if not isinstance(rope, dict):
        return positions
    kind, factor = rope.get("rope_type", rope.get("type")), rope.get("factor")
    if kind in COUNTED or not isinstance(factor, int | float) or not factor >= 0:  # NaN is not
        return positions
    original = number(rope, "original_max_position_embeddings") if kind == "yarn" else 0
    return min(int(min(factor, LARGEST) * (original or positions)), LARGEST)


def facts_from(
    config: Mapping[str, Json],
    where: str,
    local: bool,
    parameters: int | None = None,
    weight_bytes: int | None = None,
    dtypes: Mapping[str, int] | None = None,
) -> ModelFacts:
    """The facts in a config.json, with the given sizes. A missing number is 0."""
    text = text_part(config)
    heads = number(text, "num_attention_heads", "n_head", "n_heads")
    hidden = number(text, "hidden_size", "n_embd", "d_model")
    model_type = _string(config.get("model_type")) or _string(text.get("model_type")) or "unknown"
    architectures = config.get("architectures")
    tied = text.get("tie_word_embeddings", config.get("tie_word_embeddings"))
    attention, ffn = mapping(text.get("attn_config")), mapping(text.get("ffn_config"))  # of DBRX
    experts = number(text, "num_local_experts", "num_experts", "n_routed_experts") or number(ffn, "moe_num_experts")
    dense = number(text, "intermediate_size", "n_inner", "ffn_dim") or number(ffn, "ffn_hidden_size")
    active = number(text, "num_experts_per_tok", "experts_per_token") or number(ffn, "moe_top_k")
    longest = number(text, "max_position_embeddings", "n_positions", "max_sequence_length", "max_seq_len")
    kv_heads = number(text, "num_key_value_heads", "num_kv_heads", "n_head_kv") or number(attention, "kv_n_heads")
    return ModelFacts(
        where=where,
        local=local,
        config=config,
        model_type=model_type,
        architectures=tuple(name for name in architectures if isinstance(name, str))
        if isinstance(architectures, list)
        else (),
        hidden_size=hidden,
        layers=number(text, "num_hidden_layers", "n_layer", "n_layers", "num_layers"),
        heads=heads,
        kv_heads=kv_heads or heads,
        head_dim=number(text, "head_dim") or (hidden // heads if heads else 0),
        vocab_size=number(text, "vocab_size"),
        intermediate_size=dense,
        max_position_embeddings=longest or None,
        tied_embeddings=tied if isinstance(tied, bool) else model_type in TIED_TYPES,
        torch_dtype=_dtype(text) or _dtype(config),
        parameters=parameters,
        weight_bytes=weight_bytes,
        dtypes=dtypes or {},
        experts=experts,
        experts_per_token=active if experts else 0,
        expert_intermediate_size=(number(text, "moe_intermediate_size") or dense) if experts else 0,
    )


def with_overrides(facts: ModelFacts, overrides: Json) -> ModelFacts:
    """The facts as vLLM reads them with `hf_overrides`."""
    if not isinstance(overrides, dict) or not overrides:
        return facts
    sizes = (facts.parameters, facts.weight_bytes, facts.dtypes)
    changed = facts_from(overridden(facts.config, overrides), facts.where, facts.local, *sizes)
    return replace(changed, lm_head=facts.lm_head, exported=facts.exported)


def overridden(config: Mapping[str, Json], overrides: Mapping[str, Json]) -> dict[str, Json]:
    """config.json as vLLM reads it with `hf_overrides` (vLLM 0.16 to 0.32, config/model.py).

    An object is merged into the configuration of a part, and replaces any other value. It is set when `rope_scaling`
    has been read (transformers_utils/config.py). With transformers 4 only `rope_parameters` change the embedding then.
    """
    nested = {key: value for key, value in overrides.items() if isinstance(value, dict)}
    changed = {**config, **overrides}
    for key, value in nested.items():
        part = config.get(key)
        if key.endswith("_config") and key not in QUANTIZED and isinstance(part, dict):
            changed[key] = _merged(part, value)
    if "rope_parameters" in nested:
        changed["rope_scaling"] = None
    elif "rope_scaling" in nested:
        changed["rope_scaling"] = config.get("rope_scaling")
    return changed


def _merged(part: Mapping[str, Json], updates: Mapping[str, Json]) -> dict[str, Json]:
    """With objects merged at any depth."""
    merged = {**part, **updates}
    for key, value in updates.items():
        if isinstance(value, dict) and isinstance(inner := part.get(key), dict):
            merged[key] = _merged(inner, value)
    return merged


def text_part(config: Mapping[str, Json]) -> Mapping[str, Json]:
    """The language model's configuration: nested one or two levels deep, or the whole."""
    for name in TEXT_PARTS:
        inner = config.get(name)
        if isinstance(inner, dict) and inner:
            return text_part(inner)
    return config


def stored_quantization(config: Mapping[str, Json]) -> Mapping[str, Json] | None:
    """How the weights are quantized, as the model or its language model says; None if neither does."""
    parts = (config, text_part(config))
    found = (part[key] for part in parts for key in QUANTIZED if isinstance(part.get(key), dict))
    return next((each for each in found if isinstance(each, dict)), None)


def number(config: Mapping[str, Json], *names: str) -> int:
    """The value of the first of these keys that holds a whole number; 0 if none does."""
    for name in names:
        value = config.get(name)
        if isinstance(value, int) and not isinstance(value, bool) and 0 <= value < LARGEST:
            return value
    return 0


def _dtype(config: Mapping[str, Json]) -> str | None:
    """The data type, such as `bfloat16`. New versions of transformers write `dtype`, old ones `torch_dtype`."""
    return _string(config.get("torch_dtype")) or _string(config.get("dtype"))


def _string(value: Json) -> str | None:
    return value.removeprefix("torch.") if isinstance(value, str) and value else None
