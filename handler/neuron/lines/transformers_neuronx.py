"""vLLM's own Neuron backend of the engine V0 with transformers-neuronx.

Variables set buckets and quantization; a block holds a whole sequence. The backend takes the framework only without
VLLM_NEURON_FRAMEWORK: with it, it reads an attribute that does not exist (platforms/neuron.py, 0.9.1). It saves no
artifacts; the compiler's cache of single graphs spares a second compile.

Sources: vLLM 0.9.1, platforms/neuron.py, worker/neuron_worker.py, worker/neuron_model_runner.py and
model_executor/model_loader/neuron.py; guide "Transformers NeuronX Developer Guide for Continuous Batching";
aws-neuron/upstreaming-to-vllm, examples/offline_inference/neuron_int8_quantization.py and neuron_speculation.py.
"""

from __future__ import annotations

from typing import Final

from handler.config.dialects.neuron_variables import FRAMEWORK_VARIABLE, TRANSFORMERS_NEURONX
from handler.neuron.lines.feature import Feature
from handler.neuron.lines.fork import FORK_072, FORK_091, spell_speculation, whole_sequence_blocks
from handler.neuron.lines.line import ConfigKeys, Line
from handler.neuron.lines.plan_draft import PlanDraft, complete_shape, spell_fork

# What the name of a line with transformers-neuronx ends with.
SUFFIX: Final = "-tnx"
FEATURES: Final = frozenset(
    {
        Feature.TENSOR_PARALLEL,
        Feature.CONTINUOUS_BATCHING,
        Feature.CONTEXT_BUCKETS,
        Feature.TOKEN_BUCKETS,
        Feature.BUCKETING,
        Feature.BLOCKS,
        Feature.INT8,
        Feature.ON_DEVICE_SAMPLING,
        Feature.CPU_SAMPLING,
        Feature.DRAFT_MODEL,
        Feature.EAGLE,
        Feature.FUSED_SPECULATION,
        Feature.RAW,
    }
)
# Values of quantization that mean INT8: vLLM's method, and the data type that it reads from NEURON_QUANT_DTYPE.
QUANTIZATION: Final = ("int8", "s8", "neuron_quant")


def spell(draft: PlanDraft) -> None:
    """Writes the fork's engine arguments and the framework's variables."""
    spell_fork(draft)
    draft.env.pop(FRAMEWORK_VARIABLE, None)
    complete_shape(draft)
    whole_sequence_blocks(draft)
    _buckets(draft)
    _quantization(draft)
    if draft.config.on_device_sampling is False:
        draft.env["NEURON_ON_DEVICE_SAMPLING_DISABLED"] = "1"
    spell_speculation(draft, TRANSFORMERS_NEURONX)
    draft.override.update(draft.raw)
    if draft.override:
        draft.args["override_neuron_config"] = dict(draft.override)


def _buckets(draft: PlanDraft) -> None:
    config = draft.config
    if config.context_encoding_buckets:
        draft.env["NEURON_CONTEXT_LENGTH_BUCKETS"] = ",".join(map(str, config.context_encoding_buckets))
    if config.token_generation_buckets:
        draft.env["NEURON_TOKEN_GEN_BUCKETS"] = ",".join(map(str, config.token_generation_buckets))


def _quantization(draft: PlanDraft) -> None:
    """Writes `NEURON_QUANT_DTYPE`, the type, and `quantization="neuron_quant"`, which makes vLLM read it."""
    quantization = draft.config.quantization
    if quantization is None:
        return
    if quantization.lower() not in QUANTIZATION:
        why = f"transformers-neuronx quantizes to INT8 only, not to '{quantization[:40]}'"
        draft.error("unsupported-quantization", draft.config.setting("quantization"), why, "Use int8, or remove it.")
        return
    draft.args["quantization"] = "neuron_quant"
    draft.env.setdefault("NEURON_QUANT_DTYPE", "s8")


TNX_091 = Line(
    f"{FORK_091.name}{SUFFIX}",
    FEATURES,
    ConfigKeys.TRANSFORMERS_NEURONX,
    ("inf2", "trn1"),
    (2, 26),
    spell,
    TRANSFORMERS_NEURONX,
)
TNX_072 = Line(
    f"{FORK_072.name}{SUFFIX}",
    FEATURES,
    ConfigKeys.TRANSFORMERS_NEURONX,
    ("inf2", "trn1"),
    (2, 24),
    spell,
    TRANSFORMERS_NEURONX,
    served=False,
)
