"""Checks the lines for plans only: the legacy fork, and those that newer lines have taken over."""

from __future__ import annotations

import difflib
from collections.abc import Iterator
from typing import Final

from handler.config.dialects.neuron_variables import FRAMEWORK_VARIABLE, NXD_INFERENCE
from handler.config.finding import Finding
from handler.neuron.checks.check_context import CheckContext, error, info
from handler.neuron.lines.line import ConfigKeys, Line
from handler.neuron.lines.line_registry import LINE_OF_FRAMEWORK
from handler.neuron.lines.native.native_lines import NATIVE_029
from handler.neuron.lines.nxdi import NXDI_016
from handler.neuron.neuron_config.keys import ConfigKey
from handler.neuron.neuron_config.spelling import check_keys

LINE: Final = "ENDPOINT_LINE"
MODEL_TYPES: Final = ("llama", "mistral")
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
    """A user who names such a line wants its plan. One who names only a framework expects an endpoint that starts."""
    line, framework = context.line, context.draft.request.env.get(FRAMEWORK_VARIABLE, "")
    if line.served:
        return
    fix = served_instead(line, framework)
    if not context.config.line and LINE_OF_FRAMEWORK.get(framework) == line.name:
        alone = f" For its plan alone, set {LINE}={line.name} too."
        yield error("line-not-served", FRAMEWORK_VARIABLE, line.not_served, fix + alone)
    else:
        yield info("line-not-served", context.setting("line") if context.config.line else LINE, line.not_served, fix)


def served_instead(line: Line, framework: str) -> str:
    """How to start with the settings of a line for plans only.

    :param framework: the value of VLLM_NEURON_FRAMEWORK, which the line that starts may not have.
    """
    removed = f", and remove {FRAMEWORK_VARIABLE}" if framework not in ("", NXD_INFERENCE) else ""
    newer = NATIVE_029 if line.keys is ConfigKeys.NATIVE else NXDI_016
    return f"Set {LINE} to {newer.name}, whose plan takes the same settings{removed}."


def tnx_model(context: CheckContext) -> Iterator[Finding]:
    """Guide "Transformers NeuronX ... for Continuous Batching", Supported Model Architectures."""
    facts = context.facts
    if context.line.keys is ConfigKeys.TRANSFORMERS_NEURONX and facts and facts.model_type not in MODEL_TYPES:
        why = f"transformers-neuronx serves {' and '.join(MODEL_TYPES)} models, not '{facts.model_type[:40]}'"
        yield error("unsupported-model", context.setting("model"), why, "Use a line of NxD Inference (ENDPOINT_LINE).")


def tnx_buckets(context: CheckContext) -> Iterator[Finding]:
    """Prompts and sequences end at max_model_len: no bucket may be longer, and the largest must reach it."""
    length = context.draft.number("max_model_len")
    if context.line.keys is not ConfigKeys.TRANSFORMERS_NEURONX or length is None:
        return
    prompts, sequences = context.config.context_encoding_buckets, context.config.token_generation_buckets
    if prompts and max(prompts) > length:
        why = f"a bucket of {max(prompts)} tokens is longer than max_model_len ({length})"
        setting = context.setting("context_encoding_buckets")
        yield error("bucket-too-long", setting, why, f"Lower it to {length}, or raise max_model_len.")
    if sequences and max(sequences) < length:
        why = f"the largest bucket has {max(sequences)} tokens, and a sequence may have {length} (max_model_len)"
        setting = context.setting("token_generation_buckets")
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


def disaggregation(context: CheckContext) -> Iterator[Finding]:
    """Both sides need the other's address (examples/offline_inference/neuron_di.py of the fork)."""
    if context.config.disaggregation is None or not context.line.name.startswith("fork"):
        return
    setting, transfer = context.setting("disaggregation"), context.draft.args.get("kv_transfer_config")
    if (context.config.instance or "").startswith("ml."):
        why = "a prefill and a decode instance must reach each other, and the instances of an endpoint cannot"
        yield error("several-nodes", setting, why, "Remove it, or use a cluster outside SageMaker (docs/scale.md).")
    elif not isinstance(transfer, dict) or not transfer.get("kv_ip"):
        why = "the address of the other side is not configured"
        yield error("disaggregation-without-address", setting, why, "Set kv_ip in kv_transfer_config.")


LEGACY: Final = (not_served, tnx_model, tnx_buckets, tnx_keys, disaggregation)
