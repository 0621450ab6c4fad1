"""The line of optimum-neuron's plugin: vLLM's own arguments, and the shape that a model was exported with.

Models are exported, or in the hub's cache. An exported model's directory is its artifacts.

Sources: optimum-neuron 0.4.5, optimum/neuron/vllm/ (platform.py, worker.py, model_loader.py), commands/neuron/serve.py
and docs/source/guides/vllm_plugin.mdx; vLLM 0.11.0, v1/engine/core.py; guide "AWS Neuron" of vLLM's installation pages
(whose `device="neuron"` vLLM 0.11 no longer has).
"""

from __future__ import annotations

from typing import Final

from handler.neuron.lines.line import ConfigKeys, Feature, Line
from handler.neuron.lines.plan_draft import PlanDraft, complete_shape, spell_vllm

NAME: Final = "optimum"
FEATURES: Final = frozenset(
    {
        Feature.TENSOR_PARALLEL,
        Feature.CONTINUOUS_BATCHING,
        Feature.ON_DEVICE_SAMPLING,
        Feature.CPU_SAMPLING,
    }
)
# Engine argument -> key of an export's neuron_config.json (models/inference/backend/config.py).
EXPORTED: Final = {
    "max_model_len": "sequence_length",
    "max_num_seqs": "batch_size",
    "tensor_parallel_size": "tp_degree",
    "dtype": "torch_dtype",
}
SAMPLING_KEYS: Final = ("on_device_sampling", "max_topk")
SPAWN: Final = "VLLM_WORKER_MULTIPROC_METHOD"


def spell(draft: PlanDraft) -> None:
    """Writes vLLM's own arguments. The platform itself sets the block size and turns prefix caching off."""
    saved = draft.facts.exported if draft.facts else {}
    spell_vllm(draft)
    draft.env.pop("NEURON_COMPILED_ARTIFACTS", None)
    draft.env.setdefault(SPAWN, "spawn")  # as `optimum-cli neuron serve` does
    for name, key in EXPORTED.items():
        value = saved.get(key)
        if draft.args.get(name) is None and isinstance(value, int | str):
            draft.complete(name, value, f"the model was exported with {key} {value}")
    complete_shape(draft)
    if draft.args.get("max_num_batched_tokens") is None:
        # vLLM's core has no KV cache of its own here, and so no chunked prefill: a prompt that is longer than what a
        # step has left is never scheduled. vLLM's default is 2048.
        tokens = (draft.number("max_model_len") or 0) + (draft.number("max_num_seqs") or 0)
        draft.complete("max_num_batched_tokens", tokens, "a step must have room for the longest prompt")
    block = draft.config.block_size
    if block is not None and block != draft.number("max_model_len"):
        why = f"optimum-neuron replaces block_size {block} with max_model_len"
        draft.warn("block-size-unused", "block_size", why, "Remove it.")
    sampling = {key: saved[key] for key in SAMPLING_KEYS if key in saved}
    if sampling:
        draft.additional["neuron_config"] = sampling  # the plugin does not read it: the limits of requests follow
    if draft.additional:
        draft.args["additional_config"] = dict(draft.additional)


OPTIMUM: Final = Line(NAME, FEATURES, ConfigKeys.NONE, ("inf2", "trn1"), (2, 26), spell)
