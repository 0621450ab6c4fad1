"""The memory of a Neuron core besides weights and KV cache, and the source of each number.

Measured: the runtime's own report of a core that ran out of memory, with a 70B Llama 3 in bfloat16 on inf2.24xlarge
and 12 ranks (aws-neuron/transformers-neuronx, issue 92): model code 482.43 MB, tensors 13.17 GB, shared scratchpad
512 MB, DMA rings 1.471 GB, collectives 367 MB, 15.972 GB of 16 in total, in units of powers of two. This is one case;
the numbers of other models will differ. The guide "Neuron Device Memory" gives the microcode: 96 MB for each physical
core.
"""

from __future__ import annotations

from math import ceil

from handler.neuron.checkpoint.model_facts import ModelFacts
from handler.neuron.memory.memory_shape import MemoryShape
from handler.neuron.memory.rank_weights import shard_heads

MIB = 1024**2
MICROCODE = 96 * MIB
CODE_PER_LAYER = int((482.43 - 96) / 80 * MIB)
SCRATCHPAD = 512 * MIB
COLLECTIVES = 367 * MIB
RINGS_PER_TENSOR_BYTE = 1.471 / 13.170
# An assumption: we found no measurement of the instructions and rings of one more bucket.
ASSUMED_PER_GRAPH = 32 * MIB


def model_code(layers: int, lnc: int) -> int:
    """Instructions of the first graphs, and the microcode of each physical core."""
    return MICROCODE * lnc + CODE_PER_LAYER * layers


def dma_rings(tensors: float) -> int:
    """Descriptors of data movements. They grow with the tensors that are moved."""
    return int(tensors * RINGS_PER_TENSOR_BYTE)


def collectives(degree: int) -> int:
    """Buffers of the communication between ranks."""
    return COLLECTIVES if degree > 1 else 0


def further_graphs(graphs: int) -> int:
    """The graphs after the first two (one for prefill, one for decode)."""
    return max(graphs - 2, 0) * ASSUMED_PER_GRAPH


def activations(facts: ModelFacts, shape: MemoryShape) -> int:
    """Intermediate values of the longest prefill beyond the measured scratchpad.

    Assumed: four copies of the hidden states (two of them split with sequence parallelism), the MLP's two and
    attention's three of this rank, and without flash attention one layer's scores in float32.
    """
    if not facts.heads:
        return 0
    heads = shard_heads(facts.heads, facts.kv_heads, shape.degree)
    copies = 2 + 2 / shape.degree if shape.sequence_parallel else 4.0
    widest = max(facts.intermediate_size, facts.experts_per_token * facts.expert_intermediate_size)
    each = copies * facts.hidden_size + 2 * ceil(widest / shape.degree)
    each += (heads.query // shape.degree + 2 * heads.kv_per_rank) * facts.head_dim
    tokens = shape.context_batch * shape.context
    scores = 0 if shape.flash_attention else heads.query // shape.degree * tokens * shape.context * 4
    return max(int(tokens * each * shape.width) + scores - SCRATCHPAD, 0)
