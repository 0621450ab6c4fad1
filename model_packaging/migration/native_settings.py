"""Translates a configuration for NxD Inference into one for a native line.

Each setting that was given gets a row. The plan of the native line translates this endpoint's own fields, so most of
them stay as they are.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

from handler.config.config_rows import secrets
from handler.config.endpoint_config import EndpointConfig
from handler.config.fields import fields
from handler.config.value_source import Origin
from handler.errors import SettingError
from handler.neuron.hardware.instance_catalogue import lookup
from handler.neuron.lines.line import Line
from handler.neuron.lines.native.native_prefill import LONGEST_SINGLE_SHOT, SEGMENT_SIZES
from handler.neuron.lines.plan_draft import default_length, speculative_keys, vllm_arguments
from handler.neuron.neuron_config.keys import DECODE_STEP
from handler.neuron.sampling_limits import KEY as SAMPLING
from model_packaging.migration import nxdi_settings, passed_on
from model_packaging.migration.migrated_setting import MigratedSetting, Outcome, SettingTable
from model_packaging.migration.neuron_config_keys import TOP_K, NeuronConfigKeys

TOKENS: Final = "max_num_batched_tokens"
PREFILL: Final = "num_batched_tokens_buckets"
DECODE: Final = "decode_context_length_buckets"
SHORTEST_SEGMENT: Final = SEGMENT_SIZES[0]
SPECULATION: Final = ("speculation", "speculative_model", "num_speculative_tokens")
MERGED: Final = ("neuron_config", "engine_args", "neuron_env", "text_neuron_config", "vision_neuron_config")
NO_DRAFT: Final = "EAGLE3 is the plugin's only speculation: each step makes one token until there is an EAGLE3 draft"


@dataclass(frozen=True, slots=True)
class Migration:
    """The result: the configuration to deploy, and what became of each setting."""

    config: EndpointConfig
    settings: tuple[MigratedSetting, ...]


def migrate(config: EndpointConfig, line: Line) -> Migration:
    """Translates the settings of NxD Inference.

    :param line: a native line.
    :raises SettingError: the settings cannot be read, or the instance has no native line.
    """
    instance = lookup(config.instance) if config.instance else None
    if instance is not None and instance.platform not in line.platforms:
        problem = f"{line.name} does not run on {instance.name}"
        fix = "Stay on NxD Inference, which is supported on Inf2 and Trn1, or give --instance ml.trn2.48xlarge."
        raise SettingError(config.source("instance").name or "--instance", problem, fix)
    return _Migrator(config, line.name).run()


class _Migrator:
    def __init__(self, config: EndpointConfig, line: str) -> None:
        self.config, self.line = config, line
        self.table = SettingTable(secrets(config))
        self.keys = NeuronConfigKeys(self.config, self.table)
        self.extra = vllm_arguments(config)
        self.given: list[str] = []

    def run(self) -> Migration:
        for key, value in self.config.neuron_config.items():
            self.keys.sort(key, value, self.config.raw_key(key))
        for key, value in (self.config.text_neuron_config or {}).items():
            self.keys.sort(key, value, f"{self.config.setting('text_neuron_config')}.{key}")
        vision = passed_on.vision_section(self.config, self.line, self.table)
        named = (name for name in fields() if name not in MERGED)
        self.given = [name for name in named if name in self.keys.names or self._is_given(name)]
        self._top_k()
        self._speculation()
        self._quantization()
        self._prefill()
        for name in tuple(self.given):
            self._field(name)
        if self.config.hf_token is not None:
            why = "set HF_TOKEN in the environment: the document holds no secret"
            self.table.add(self.config.setting("hf_token"), self.config.hf_token, Outcome.KEPT, why)
        native, values = self.keys.native, self.keys.values
        if self.keys.sampling:
            native[SAMPLING] = {"all_greedy": False, **self.keys.sampling}
        extra = {**self.extra, **self.keys.arguments}
        if self._value("speculation") == "eagle3" and speculative_keys(self.config):
            extra["speculative_config"] = speculative_keys(self.config)
        values.update(line=self.line, text_neuron_config=None, vision_neuron_config=vision, neuron_config=native)
        values["engine_args"] = passed_on.arguments(self.config, extra, self.line, self.table)
        values["neuron_env"] = passed_on.variables(self.config, self.table)
        return Migration(replace(self.config, **values), tuple(self.table.rows))

    def _name(self, field: str) -> str:
        return self.keys.names.get(field) or self.config.setting(field)

    def _value(self, field: str) -> Any:
        return self.keys.values.get(field, getattr(self.config, field))

    def _is_given(self, name: str) -> bool:
        value, field = getattr(self.config, name), fields()[name]
        if field.metadata.secret:
            return False
        return value != field.default or (value is not None and self.config.source(name).origin is not Origin.DEFAULT)

    def _row(self, name: str, outcome: Outcome, note: str, value: object = None) -> None:
        """Writes the row of a field, once. The field takes the new value if it is translated, else its default."""
        if name not in self.given:
            return
        self.given.remove(name)
        self.table.add(self._name(name), self._value(name), outcome, note)
        if outcome is not Outcome.KEPT:
            self.keys.values[name] = fields()[name].default if value is None else value

    def _field(self, name: str) -> None:
        value = self._value(name)
        if name in nxdi_settings.FIELDS:
            self._row(name, *nxdi_settings.FIELDS[name])
        elif name == "line":
            self._row(name, Outcome.TRANSLATED, self.line, self.line)
        elif name == "async_mode" and value:
            self._row(name, Outcome.AUTOMATIC, "scheduling is asynchronous where sampling allows it")
        elif name == "enable_bucketing" and value:
            self._row(name, Outcome.AUTOMATIC, "the buckets are powers of two by default")
        elif name == "on_miss" and value != "compile":
            self._row(name, Outcome.KEPT, "but no artifact has the new key: `neuron-endpoint compile` first")
        elif name in self.keys.names:
            self._row(name, Outcome.TRANSLATED, name, value)
        else:
            self._row(name, Outcome.KEPT, "has the same meaning")

    def _top_k(self) -> None:
        if "global_topk" in self.given:
            if self._value("on_device_sampling") is not False:
                self.keys.sampling.setdefault("max_top_k", self._value("global_topk"))
            self._row("global_topk", Outcome.TRANSLATED, TOP_K)

    def _speculation(self) -> None:
        method = self._value("speculation") or ("draft_model" if self._value("speculative_model") else None)
        self._row("fused_speculation", Outcome.AUTOMATIC, "draft and target are always one step")
        if method not in (None, "eagle3"):
            for name in SPECULATION:
                self._row(name, Outcome.UNAVAILABLE, NO_DRAFT)

    def _quantization(self) -> None:
        value, skipped = str(self._value("quantization") or "").lower(), "modules_to_not_convert"
        if not value.startswith(("mx", "bf16", "bfloat16")):
            self._row("quantization", *nxdi_settings.FIELDS["quantization_type"])
            self._row(skipped, *nxdi_settings.FIELDS["quantization_type"])
        elif skipped in self.given:
            self.keys.native[skipped] = list(self._value(skipped))
            self._row(skipped, Outcome.TRANSLATED, f"neuron_config.{skipped}")

    def _prefill(self) -> None:
        prefill, decode = self._value("context_encoding_buckets"), self._value("token_generation_buckets")
        values = {"context_encoding_buckets": prefill, "token_generation_buckets": decode}
        values["max_context_length"] = self._value("max_context_length")
        length: int = self._value("max_model_len") or default_length(replace(self.config, **values), None)
        if any(values.values()):
            self.keys.values["max_model_len"] = length
        if length <= SHORTEST_SEGMENT and self._value("enable_prefix_caching"):
            why = f"prefix caching needs a segment of {SHORTEST_SEGMENT} tokens, and a longer max_model_len"
            self._row("enable_prefix_caching", Outcome.UNAVAILABLE, why)
        caching, chunked = self._value("enable_prefix_caching"), self._value("enable_chunked_prefill")
        segmented = _is_segmented(length, caching, chunked)
        if segmented and chunked is False:
            self._row("enable_chunked_prefill", Outcome.UNAVAILABLE, "prefill has segments here")
        if segmented:
            why = "prefill has segments of one size, which is its only bucket"
            self._row("context_encoding_buckets", Outcome.AUTOMATIC, why)
        elif prefill:
            note = f"{PREFILL}, of which the largest is max_model_len"
            sizes = _prefill_buckets(prefill, length)
            self._row("context_encoding_buckets", Outcome.TRANSLATED, note, sizes)
        if decode and (smaller := _decode_buckets(decode, length)):
            note = f"{DECODE}, all below max_model_len"
            self._row("token_generation_buckets", Outcome.TRANSLATED, note, smaller)
        self._row("token_generation_buckets", Outcome.AUTOMATIC, "the plugin always compiles max_model_len")
        tokens = self.extra.get(TOKENS)
        own = self._value("context_encoding_buckets") is not None
        if tokens is not None and (own or not _tokens_fit(tokens, length, segmented)):
            del self.extra[TOKENS]
            why = "the plan chooses tokens of a step that the plugin starts with"
            self.table.add(self.config.setting(TOKENS), tokens, Outcome.AUTOMATIC, why)


# The plugin's rules for buckets, from vllm-neuron 0.24.0.1.1.0, vllm_neuron/utils/bucket_utils.py: the largest prefill
# bucket is the step's tokens, a segmented prefill has one bucket, decode buckets are multiples of 128 below the length.


def _is_segmented(length: int, prefix_caching: object, chunked_prefill: object) -> bool:
    """Whether prompts are prefilled in segments, all of one size."""
    return length > LONGEST_SINGLE_SHOT or prefix_caching is True or chunked_prefill is True


def _prefill_buckets(buckets: Sequence[int], length: int) -> tuple[int, ...]:
    """The buckets of a prefill in one step. The largest is the length."""
    return (*sorted({size for size in buckets if 0 < size < length}), length)


def _decode_buckets(buckets: Sequence[int], length: int) -> tuple[int, ...]:
    """The decode buckets below the length, which the plugin adds. Empty: the length is the only one."""
    rounded = {-(-size // DECODE_STEP) * DECODE_STEP for size in buckets if size > 0}
    return tuple(sorted(size for size in rounded if size < length))


def _tokens_fit(tokens: object, length: int, segmented: bool) -> bool:
    """Whether the plugin starts with this `max_num_batched_tokens`."""
    if not isinstance(tokens, int):
        return False
    return tokens in SEGMENT_SIZES if tokens < length else not segmented
