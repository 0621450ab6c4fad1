"""Checks what the fork's vLLM and its Neuron backend reject or ignore, and the lines for plans only.

Sources: vLLM 0.9.1, config.py, engine/arg_utils.py, platforms/neuron.py, worker/neuron_worker.py and
worker/neuron_model_runner.py.
"""

from __future__ import annotations

import difflib
from collections.abc import Iterator
from typing import Final

from handler.config.finding import Finding
from handler.neuron.checks.check_context import CheckContext, Rejected, error, info, rejected, unsupported_model
from handler.neuron.lines.line import ConfigKeys, Line
from handler.neuron.lines.native.native_lines import NATIVE_029
from handler.neuron.lines.nxdi import NXDI_016
from handler.neuron.neuron_config.keys import ConfigKey
from handler.neuron.neuron_config.spelling import check_keys

LINE: Final = "ENDPOINT_LINE"
MODEL_TYPES: Final = ("llama", "mistral")
REJECTED: Final[Rejected] = {
    "structured_outputs": ((None, False), "the engine V0 takes no grammar here"),
    "num_scheduler_steps": ((None, 1), "the runner raises an error at more than one step"),
    "data_parallel_size": ((None, 1), "the engine V0 has no data parallelism"),
    "enable_sleep_mode": ((None, False), "the platform has no sleep mode"),
    "task": ((None, "auto", "generate"), "the worker generates only"),
}
# The same with transformers-neuronx.
REJECTED_TNX: Final[Rejected] = {
    "pipeline_parallel_size": ((None, 1), "the worker has one stage, and two schedulers would give out the same slots"),
    "kv_transfer_config": ((None,), "the worker moves no KV cache"),
    "kv_cache_dtype": ((None, "auto"), "the runner ignores it (`kv_cache_quant` in the raw NeuronConfig is INT8)"),
}
# The keys of NeuronConfig in the developer guide of transformers-neuronx, and in its config.py. Later versions may have
# more, so an unknown key is an error only if it resembles one of these.
NAMES: Final = """
    all_reduce_dtype attention_layout attn_output_transposed bf16_rms_norm cache_layout cast_logits_dtype
    collectives_layout compilation_worker_count continuous_batching duplicate_q_weight_sos fuse_mlp fuse_qkv
    fused_rmsnorm_mlp fused_rmsnorm_qkv group_query_attention kv_cache_quant log_softmax_scores
    mlp_out_weight_transpose on_device_embedding on_device_generation output_all_logits padding_side
    qkv_tiling quant sequence_parallel_norm sequence_parallel_norm_threshold shard_over_sequence sparse_attn
    use_2d_cache_ids weight_tiling
"""
KEYS: Final[dict[str, ConfigKey]] = dict.fromkeys(NAMES.split(), ConfigKey("any"))


def not_served(context: CheckContext) -> Iterator[Finding]:
    """A user who names such a line wants its plan."""
    line = context.line
    if not line.served:
        setting = "line" if context.config.line else LINE
        yield info("line-not-served", setting, line.not_served, served_instead(line))


def served_instead(line: Line) -> str:
    """How to start with the settings of a line for plans only."""
    newer = {"fork-0.7.2": "fork-0.9.1", "fork-0.7.2-tnx": "fork-0.9.1-tnx"}.get(line.name)
    newer = newer or (NATIVE_029 if line.keys is ConfigKeys.NATIVE else NXDI_016).name
    return f"Set {LINE} to {newer}, whose plan takes the same settings."


def backend(context: CheckContext) -> Iterator[Finding]:
    """What the parser, the platform or the worker would reject, or what would have no effect."""
    tnx = context.line.keys is ConfigKeys.TRANSFORMERS_NEURONX
    if not context.line.name.startswith("fork"):
        return
    yield from rejected(context, "not-on-fork", {**REJECTED, **(REJECTED_TNX if tnx else {})})
    length, tokens = context.draft.number("max_model_len"), context.draft.number("max_num_batched_tokens")
    if tokens is not None and length is not None and tokens < length and not context.config.enable_chunked_prefill:
        why = f"{tokens} is below max_model_len ({length}): vLLM does not start without chunked prefill"
        yield error("token-budget", "max_num_batched_tokens", why, f"Remove it, or give {length}.")
    blocks, sequences = context.draft.number("num_gpu_blocks_override"), context.draft.number("max_num_seqs")
    if tnx and blocks is not None and sequences is not None and blocks != sequences + 1:
        why = f"the worker asserts {sequences + 1} blocks, one for each sequence and one more, not {blocks}"
        yield error("block-count", "num_gpu_blocks_override", why, "Remove it.")


def tnx_model(context: CheckContext) -> Iterator[Finding]:
    """Guide "Transformers NeuronX ... for Continuous Batching", Supported Model Architectures."""
    facts = context.facts
    if context.line.keys is ConfigKeys.TRANSFORMERS_NEURONX and facts and facts.model_type not in MODEL_TYPES:
        why = f"transformers-neuronx serves {' and '.join(MODEL_TYPES)} models, not '{facts.model_type[:40]}'"
        yield unsupported_model(context, why, "Use a line of NxD Inference (ENDPOINT_LINE).")


def tnx_buckets(context: CheckContext) -> Iterator[Finding]:
    """Prompts and sequences end at max_model_len: no bucket may be longer, and the largest must reach it."""
    length = context.draft.number("max_model_len")
    if context.line.keys is not ConfigKeys.TRANSFORMERS_NEURONX or length is None:
        return
    prompts, sequences = context.config.context_encoding_buckets, context.config.token_generation_buckets
    if prompts and max(prompts) > length:
        why = f"a bucket of {max(prompts)} tokens is longer than max_model_len ({length})"
        setting = "context_encoding_buckets"
        yield error("bucket-too-long", setting, why, f"Lower it to {length}, or raise max_model_len.")
    if sequences and max(sequences) < length:
        why = f"the largest bucket has {max(sequences)} tokens, and a sequence may have {length} (max_model_len)"
        setting = "token_generation_buckets"
        yield error("bucket-coverage", setting, why, f"Add {length} to the buckets, or lower max_model_len.")


def tnx_keys(context: CheckContext) -> Iterator[Finding]:
    if context.line.keys is ConfigKeys.TRANSFORMERS_NEURONX:
        # KEYS is not complete, so a key that resembles none of them may be right.
        given = {
            key: value
            for key, value in context.draft.override.items()
            if key in KEYS or difflib.get_close_matches(key, KEYS, n=1, cutoff=0.8)
        }
        yield from check_keys(given, KEYS, context.key, reference="transformers-neuronx's NeuronConfig")


LEGACY: Final = (not_served, backend, tnx_model, tnx_buckets, tnx_keys)
