"""Rules on data types, lengths, buckets and batches (NxDI models/config.py, NeuronConfig.__init__)."""

from __future__ import annotations

from typing import Final

from handler.neuron.neuron_config.config_values import ConfigValues
from handler.neuron.neuron_config.rule import BrokenRule, ConfigRule

DTYPES: Final = ("float32", "float16", "bfloat16", "float8_e4m3fn", "float8_e5m2")
CAST_TYPES: Final = ("config", "as-declared")


def unknown_dtype(values: ConfigValues) -> BrokenRule | None:
    for key in ("torch_dtype", "attention_dtype", "rpl_reduce_dtype"):
        dtype = values.text(key)
        if dtype is not None and dtype not in DTYPES:
            return BrokenRule(key, f"'{dtype}' is not a data type of NeuronConfig", f"Use one of {', '.join(DTYPES)}.")
    return None


def unknown_cast_type(values: ConfigValues) -> BrokenRule | None:
    cast = values.text("cast_type")
    if cast is None or cast in CAST_TYPES:
        return None
    return BrokenRule("cast_type", f"'{cast}' is not a cast type", f"Use {' or '.join(CAST_TYPES)}.")


def attention_dtype(values: ConfigValues) -> BrokenRule | None:
    attention, dtype = values.text("attention_dtype"), values.text("torch_dtype")
    if attention is None or attention == dtype or values.text("cast_type") == "as-declared":
        return None
    why = f"attention is in {attention} and the rest in {dtype}, but cast_type casts both to one type"
    return BrokenRule("attention_dtype", why, "Set cast_type to 'as-declared', or remove attention_dtype.")


def context_longer_than_length(values: ConfigValues) -> BrokenRule | None:
    context, length = values.number("max_context_length"), values.number("max_length")
    if context <= length:
        return None
    why = f"the longest prompt ({context} tokens) is longer than the whole sequence ({length} tokens)"
    return BrokenRule("max_context_length", why, f"Lower it to {length} or less, or raise max_model_len.")


def empty_buckets(values: ConfigValues) -> BrokenRule | None:
    for key in ("context_encoding_buckets", "token_generation_buckets", "token_generation_batches"):
        if values.get(key) == []:
            return BrokenRule(key, "an empty list of buckets raises an IndexError", "Remove it, or give a length.")
    return None


def context_bucket_too_long(values: ConfigValues) -> BrokenRule | None:
    buckets, limit = values.numbers("context_encoding_buckets"), values.number("max_context_length")
    if not buckets or max(buckets) <= limit:
        return None
    why = f"the context bucket {max(buckets)} is above max_context_length, {limit}"
    return BrokenRule("context_encoding_buckets", why, f"Keep the buckets at {limit} or below.")


def token_bucket_too_long(values: ConfigValues) -> BrokenRule | None:
    buckets, limit = values.numbers("token_generation_buckets"), values.number("max_length")
    if not buckets or max(buckets) <= limit:
        return None
    why = f"the token bucket {max(buckets)} is above the sequence length, {limit}"
    return BrokenRule("token_generation_buckets", why, f"Keep the buckets at {limit} or below.")


def _batches(values: ConfigValues) -> list[int]:
    given = values.get("token_generation_batches")
    if isinstance(given, int) and not isinstance(given, bool):
        return [given]
    return values.numbers("token_generation_batches") or []


def token_batch_too_large(values: ConfigValues) -> BrokenRule | None:
    batches, limit = _batches(values), values.number("tkg_batch_size")
    if not batches or max(batches) <= limit:
        return None
    why = f"the token batch {max(batches)} is above the decode batch, {limit}"
    return BrokenRule("token_generation_batches", why, f"Keep it at {limit} or below, or raise max_num_seqs.")


def batch_buckets_alone(values: ConfigValues) -> BrokenRule | None:
    if not _batches(values):
        return None
    features = {
        "speculation": values.speculates,
        "Medusa": values.flag("is_medusa"),
        "a token tree": values.get("token_tree_config") is not None,
        "chunked prefill": values.chunked,
        "prefix caching": values.flag("is_prefix_caching"),
        "the block KV layout": values.flag("is_block_kv_layout"),
    }
    clash = [name for name, on in features.items() if on]
    if not clash:
        return None
    why = f"token buckets by batch do not work with {', '.join(clash)}"
    return BrokenRule("token_generation_batches", why, f"Remove it, or switch off {', '.join(clash)}.")


def chunked_attention_prefix_caching(values: ConfigValues) -> BrokenRule | None:
    """Llama 4's chunked attention, when the sequence is longer than a chunk (InferenceConfig.validate_config)."""
    chunk = values.model.get("attention_chunk_size")
    if not isinstance(chunk, int) or chunk >= values.number("seq_len"):
        return None
    clash = {
        "is_prefix_caching": values.flag("is_prefix_caching"),
        "chunked_prefill_config": values.chunked,
        "flash_decoding_enabled": values.flag("flash_decoding_enabled"),
        "attn_tkg_builtin_kernel_enabled": values.flag("attn_tkg_builtin_kernel_enabled"),
        "attn_tkg_nki_kernel_enabled": values.flag("attn_tkg_nki_kernel_enabled"),
        "attention_dp_degree": values.number("attention_dp_degree") > 1,
    }
    for key, on in clash.items():
        if on:
            why = f"the model has chunked attention (chunks of {chunk} tokens), which does not work with {key}"
            return BrokenRule(key, why, f"Remove it, or keep max_model_len at {chunk} or below.")
    return None


SHAPE_RULES: Final = (
    ConfigRule("unknown-dtype", unknown_dtype),
    ConfigRule("unknown-cast-type", unknown_cast_type),
    ConfigRule("attention-dtype", attention_dtype),
    ConfigRule("context-longer-than-length", context_longer_than_length),
    ConfigRule("empty-buckets", empty_buckets),
    ConfigRule("context-bucket-too-long", context_bucket_too_long),
    ConfigRule("token-bucket-too-long", token_bucket_too_long),
    ConfigRule("token-batch-too-large", token_batch_too_large),
    ConfigRule("batch-buckets-alone", batch_buckets_alone),
    ConfigRule("chunked-attention", chunked_attention_prefix_caching),
)
