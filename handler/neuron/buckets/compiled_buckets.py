"""`CompiledBuckets`: the lengths and batch sizes that a plan's graphs are compiled for.

NxD Inference (0.10): modules/autobucketing.py (powers of two from 128), models/model_wrapper.py (`_get_seq_bucket`: an
input must be shorter than its bucket, except in the largest one).

Native plugin (0.24): vllm_neuron/utils/bucket_utils.py; AWS Neuron documentation, vLLM Neuron, "Configuration options"
(an input takes the smallest bucket that holds it; decode lengths have max_model_len as the last bucket).
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final

from handler.config.endpoint_config import EndpointConfig
from handler.json_value import Json, whole_numbers
from handler.neuron.engine_plan import EnginePlan
from handler.neuron.hardware.instance_catalogue import lookup
from handler.neuron.lines.cpu import CPU
from handler.neuron.lines.line import ConfigKeys
from handler.neuron.lines.line_registry import find_line
from handler.neuron.lines.native.native_lines import SEQUENCE_BUCKETS
from handler.neuron.lines.native.native_prefill import DECODE_BUCKETS, powers, prefill_sizes, segments
from handler.neuron.neuron_config.model_rules import generated_buckets

# The instance that is planned for if none is configured: the largest one that SageMaker hosts.
LARGEST: Final = "trn2.48xlarge"


@dataclass(frozen=True, slots=True)
class CompiledBuckets:
    """The buckets of one plan, each list in ascending order.

    :param prefill: tokens of a prefill. With segments it has one entry.
    :param decode: tokens of context that a decode step reads.
    :param batches: sequences of a decode step.
    :param segmented: a prompt is prefilled in segments, each of `prefill[0]` tokens.
    :param exclusive: an input must be shorter than its bucket, unless the bucket is the last one.
    """

    prefill: tuple[int, ...]
    decode: tuple[int, ...]
    batches: tuple[int, ...]
    segmented: bool = False
    exclusive: bool = False

    def prefill_tokens(self, prompt: int) -> int:
        """The tokens that a prompt computes: its bucket, or all of its segments."""
        if self.segmented:
            return -(-prompt // self.prefill[0]) * self.prefill[0]
        return self._bucket(self.prefill, prompt)

    def decode_tokens(self, context: int) -> int:
        """The tokens of context that a decode step reads for a sequence with `context` tokens."""
        return self._bucket(self.decode, context)

    def batch(self, sequences: int) -> int:
        """The sequences that a decode step computes."""
        return self.batches[min(bisect_left(self.batches, sequences), len(self.batches) - 1)]

    @property
    def graphs(self) -> int:
        """The number of graphs to compile. Decode has one for each batch and length."""
        return len(self.prefill) + len(self.decode) * len(self.batches)

    def room(self, bucket: int, last: int) -> int:
        """The longest input of a bucket in a list that ends with `last`."""
        return bucket - 1 if self.exclusive and bucket < last else bucket

    def _bucket(self, buckets: Sequence[int], length: int) -> int:
        at = bisect_left(buckets, length + 1 if self.exclusive and length < buckets[-1] else length)
        return buckets[min(at, len(buckets) - 1)]


def compiled_buckets(plan: EnginePlan) -> CompiledBuckets | None:
    """The buckets of a plan; None if tokens cannot be counted by them.

    The CPU and the older lines have none. Prefix caching on NxD Inference has buckets of two dimensions. With
    speculation a step makes an unknown number of tokens.
    """
    line = find_line(plan.line)
    length, sequences = plan.engine_args.get("max_model_len"), plan.engine_args.get("max_num_seqs")
    if line is None or not isinstance(length, int) or not isinstance(sequences, int):
        return None
    if plan.engine_args.get("speculative_config"):
        return None
    if line.keys is ConfigKeys.NATIVE:
        return _native(plan.section("neuron_config"), plan.engine_args, length, sequences)
    if line.name.startswith("nxdi"):
        return _nxdi(plan.section("override_neuron_config"), plan.engine_args, length, sequences)
    return None


def _native(keys: Mapping[str, Json], args: Mapping[str, Json], length: int, sequences: int) -> CompiledBuckets:
    return CompiledBuckets(
        prefill=tuple(prefill_sizes(keys, args, length)),
        decode=(*whole_numbers(keys.get(DECODE_BUCKETS)), length),
        batches=tuple(whole_numbers(keys.get(SEQUENCE_BUCKETS)) or powers(1, sequences)),
        segmented=bool(segments(keys, args, length)),
    )


def _nxdi(keys: Mapping[str, Json], args: Mapping[str, Json], length: int, sequences: int) -> CompiledBuckets | None:
    if args.get("enable_prefix_caching") or args.get("enable_chunked_prefill") or "text_neuron_config" in keys:
        return None
    limit = keys.get("max_context_length")
    context = limit if isinstance(limit, int) else length
    whole = keys.get("enable_bucketing") is False
    prefill = [context] if whole else whole_numbers(keys.get("context_encoding_buckets")) or generated_buckets(context)
    decode = [length] if whole else whole_numbers(keys.get("token_generation_buckets")) or generated_buckets(length)
    return CompiledBuckets(
        prefill=tuple(sorted(prefill)),
        decode=tuple(sorted(decode)),
        batches=(sequences,),
        exclusive=True,
    )


def planned_buckets(plan: EnginePlan, config: EndpointConfig, length: int, sequences: int) -> CompiledBuckets | None:
    """The buckets by which an endpoint counts padding. On the CPU: those of the Neuron line that it is planned for.

    :param length, sequences: the engine's max_model_len and max_num_seqs.
    """
    if plan.line != CPU.name:
        return compiled_buckets(plan)
    from handler.neuron.planning.planner import make_plan

    config = replace(config, line=None, max_model_len=length, max_num_seqs=sequences)
    planned = make_plan(config, None, lookup(config.instance or LARGEST)).plan
    return None if planned is None else compiled_buckets(planned)
