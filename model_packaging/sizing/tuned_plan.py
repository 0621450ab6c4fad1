"""Tunes the settings of one endpoint to the lengths of its requests, and states what that saves."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, Final

from handler.config.config_rows import json_value
from handler.config.endpoint_config import EndpointConfig
from handler.config.fields import native_key, nxd_key
from handler.errors import SettingError
from handler.json_value import Json
from handler.neuron.buckets.compiled_buckets import CompiledBuckets
from handler.neuron.checkpoint.model_facts import ModelFacts
from handler.neuron.hardware.chip_rates import REQUEST_SECONDS
from handler.neuron.hardware.instance_catalogue import InstanceType, default_lnc
from handler.neuron.lines.native.native_lines import SEQUENCE_BUCKETS
from handler.neuron.lines.native.native_prefill import SEGMENTS, TOKENS
from model_packaging.sizing.line_buckets import choose_buckets
from model_packaging.sizing.plan_cost import PlanCost, plan_cost
from model_packaging.sizing.prediction import prefill_seconds
from model_packaging.sizing.request_log import RequestLengths
from model_packaging.sizing.sized_plan import SizedPlan, make_sized_plan

PREFILL: Final = "context_encoding_buckets"
DECODE: Final = "token_generation_buckets"
# What a tuning may change: these fields, these keys of `neuron_config`, and this key of `engine_args`.
KEYS: Final = (PREFILL, DECODE, native_key(PREFILL), native_key(DECODE), nxd_key(PREFILL), SEGMENTS, SEQUENCE_BUCKETS)
TUNED: Final = (PREFILL, DECODE, "max_num_seqs", "neuron_config", "engine_args")
# The share of the time in which no request waits for a slot.
SERVED_SHARE: Final = 0.99
# The share of the prompts that the limit of the first token is for.
SLOWEST: Final = 0.99


@dataclass(frozen=True, slots=True)
class Tuning:
    """The result.

    :param changed: the fields that differ, each with its old and new value.
    """

    config: EndpointConfig
    today: PlanCost
    proposed: PlanCost
    changed: Mapping[str, tuple[Json, Json]]

    def saved(self) -> dict[str, float]:
        """For each phase, the share of today's padding that the proposal does not compute."""
        pairs = ((self.today.prefill, self.proposed.prefill), (self.today.decode, self.proposed.decode))
        return {now.phase: 1 - then.padding / now.padding if now.padding else 0.0 for now, then in pairs}

    def document(self) -> dict[str, Json]:
        return {
            "changed": {name: {"today": old, "proposed": new} for name, (old, new) in self.changed.items()},
            "today": self.today.document(),
            "proposed": self.proposed.document(),
            "padding_saved": {phase: round(share, 4) for phase, share in self.saved().items()},
        }


def tune(
    config: EndpointConfig,
    facts: ModelFacts | None,
    instance: InstanceType | None,
    lengths: RequestLengths,
    *,
    graphs: int | None = None,
    ttft: float | None = None,
) -> Tuning:
    """Chooses sequences, buckets and the segment size. Everything else of the configuration stays.

    :param graphs: as in `choose_buckets`.
    :param ttft: the most seconds to the first token, as predicted, of a prompt that 99 % of the prompts do not exceed.
    :raises SettingError: there is no plan for the settings as they are, or it has no list of buckets; or a limit cannot
        be kept.
    """
    today = make_sized_plan(config, facts, instance)
    sized_config, sized = _with_sequences(config, today, lengths)
    now, roofline = sized.listed_buckets(), today.roofline
    lnc = config.logical_nc_config or (default_lnc(instance) if instance else 1)
    flash = now.exclusive and lnc == 2
    segment = roofline.prefill if roofline else None
    chosen = choose_buckets(now, lengths, flash=flash, graphs=graphs, segment_seconds=segment)
    tuned = _with_buckets(sized_config, chosen, bool(lengths.running))
    before, after = ({name: json_value(getattr(each, name)) for name in TUNED} for each in (config, tuned))
    changed = {name: (before[name], after[name]) for name in TUNED if before[name] != after[name]}
    proposed = make_sized_plan(tuned, facts, instance)
    _check_memory(proposed)
    if ttft is not None:
        _check_first_token(ttft, proposed, lengths.prompt_percentile(SLOWEST))
    return Tuning(tuned, plan_cost(today, lengths), plan_cost(proposed, lengths), changed)


def _check_memory(proposed: SizedPlan) -> None:
    if proposed.memory is not None and not proposed.fits:
        need, has = proposed.memory.total / 2**30, proposed.memory.available / 2**30
        why = f"the proposal needs {need:.1f} GiB of a core, which has {has:.1f}"
        raise SettingError("--graphs", why, "Give fewer graphs, a larger instance, or a shorter max_model_len.")


def _check_first_token(limit: float, proposed: SizedPlan, prompt: int) -> None:
    if proposed.roofline is None:
        raise SettingError("--ttft", "it needs the model's shape and the instance", "Give MODEL and --instance.")
    seconds = REQUEST_SECONDS + prefill_seconds(proposed.roofline, proposed.listed_buckets(), prompt)
    if seconds > limit:
        why = f"a prompt of {prompt} tokens has its first token after {seconds:.3g} s, as predicted"
        raise SettingError("--ttft", why, "Raise the limit or tensor_parallel_size, or take a faster instance.")


def _with_sequences(
    config: EndpointConfig, today: SizedPlan, lengths: RequestLengths
) -> tuple[EndpointConfig, SizedPlan]:
    """As many sequences as ran at once for nearly all of the time. More than today only if they fit."""
    now, sequences = today.listed_buckets().batches[-1], lengths.running_percentile(SERVED_SHARE)
    if not sequences or sequences == now:
        return config, today
    changed = replace(config, max_num_seqs=sequences, neuron_config=_without(config.neuron_config, SEQUENCE_BUCKETS))
    sized = make_sized_plan(changed, today.facts, today.instance)
    return (changed, sized) if sized.fits or sequences < now else (config, today)


def _with_buckets(config: EndpointConfig, chosen: CompiledBuckets, timed: bool) -> EndpointConfig:
    """The configuration that compiles the chosen buckets.

    :param timed: the log told how many requests ran at once, so the batches are chosen as well.
    """
    kept = () if timed else (SEQUENCE_BUCKETS,)
    raw = _without(config.neuron_config, *(key for key in KEYS if key not in kept))
    fields: dict[str, Any] = {PREFILL: chosen.prefill, DECODE: chosen.decode}
    if not chosen.exclusive:  # the native plugin adds the length itself
        fields[DECODE] = chosen.decode[:-1] or None
        if timed:
            raw[SEQUENCE_BUCKETS] = [*chosen.batches]
    if chosen.segmented:
        fields[PREFILL] = None
        raw[SEGMENTS] = [*chosen.prefill]
        fields["engine_args"] = _without(config.engine_args, TOKENS)
    return replace(config, neuron_config=raw, **fields)


def _without(mapping: Mapping[str, Json], *names: str) -> dict[str, Json]:
    return {name: value for name, value in mapping.items() if name not in names}
