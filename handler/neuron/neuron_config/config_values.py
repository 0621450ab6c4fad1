"""`ConfigValues`, the keys of a NeuronConfig with the class's defaults, and `ConfigRule`, a rule on them."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Final

from handler.json_value import Json, mapping, whole_number, whole_numbers
from handler.neuron.neuron_config.keys import KEYS

# Key -> the key whose value is its default (NxDI models/config.py).
FOLLOWS: Final = {
    "max_context_length": "seq_len",
    "max_length": "seq_len",
    "n_positions": "seq_len",
    "pa_block_size": "seq_len",
    "ctx_batch_size": "batch_size",
    "tkg_batch_size": "batch_size",
    "max_batch_size": "batch_size",
    "kv_cache_batch_size": "batch_size",
    "pa_num_blocks": "batch_size",
}


@dataclass(frozen=True, slots=True)
class ConfigValues:
    """The given keys, completed by NeuronConfig's defaults.

    A value of the wrong type reads as the default. Another check reports the type.
    """

    given: Mapping[str, Json]
    model: Mapping[str, Json] = field(default_factory=dict)

    def get(self, key: str) -> Json:
        value = self.given.get(key)
        if value is not None:
            return value
        if key in FOLLOWS:
            return self.get(FOLLOWS[key])
        return KEYS[key].default

    def __getitem__(self, key: str) -> str:
        """The value as messages show it."""
        return str(self.get(key))[:40]

    def nested(self, key: str) -> dict[str, Json]:
        """A nested configuration; empty if there is none."""
        return mapping(self.get(key))

    def flag(self, key: str) -> bool:
        value = self.get(key)
        return value if isinstance(value, bool) else False

    def number(self, key: str) -> int:
        value = whole_number(self.get(key))
        if value is not None:
            return value
        if key in FOLLOWS:
            return self.number(FOLLOWS[key])
        default = KEYS[key].default
        return default if isinstance(default, int) else 0

    def text(self, key: str) -> str | None:
        value = self.get(key)
        return value if isinstance(value, str) else None

    def numbers(self, key: str) -> list[int] | None:
        """A list of lengths or sizes; None if there is none, or if it is not a list of whole numbers."""
        value = self.get(key)
        if not isinstance(value, list):
            return None
        numbers = whole_numbers(value)
        return numbers if len(numbers) == len(value) else None

    def degree(self, key: str) -> int:
        """A degree, never below 1, so that rules may divide by it."""
        return max(self.number(key), 1)

    @property
    def eagle(self) -> bool:
        return self.flag("enable_eagle_speculation")

    @property
    def speculates(self) -> bool:
        return self.number("speculation_length") > 0 or self.flag("enable_fused_speculation") or self.eagle

    @property
    def chunked(self) -> bool:
        return self.get("chunked_prefill_config") is not None

    @property
    def block_kernel(self) -> bool:
        older = self.flag("attn_tkg_nki_kernel_enabled") or self.flag("attn_tkg_builtin_kernel_enabled")
        return older or self.flag("attn_block_tkg_nki_kernel_enabled")

    @property
    def qkv_kernel(self) -> bool:
        return self.flag("qkv_kernel_enabled") or self.flag("qkv_nki_kernel_enabled")

    @property
    def mlp_kernel(self) -> bool:
        """`mlp_tkg_nki_kernel_enabled` is the older name of the same kernel."""
        return self.flag("mlp_kernel_enabled") or self.flag("mlp_tkg_nki_kernel_enabled")

    @property
    def mlp_quantized(self) -> bool:
        return self.flag("quantized_mlp_kernel_enabled") or self.text("activation_quantization_type") is not None


@dataclass(frozen=True, slots=True)
class BrokenRule:
    """A rule that is broken. `key` is the NeuronConfig key to change."""

    key: str
    why: str
    fix: str


@dataclass(frozen=True, slots=True)
class ConfigRule:
    """One rule. `code` is the code of our finding."""

    code: str
    check: Callable[[ConfigValues], BrokenRule | None]


def rule(code: str, key: str, broken: Callable[[ConfigValues], object], why: str, fix: str) -> ConfigRule:
    """A rule as a row of a table.

    :param key: the NeuronConfig key to change.
    :param broken: whether a NeuronConfig breaks the rule.
    :param why, fix: the texts, with `{tp_degree}` for the value of a key.
    """

    def check(values: ConfigValues) -> BrokenRule | None:
        return BrokenRule(key, why.format_map(values), fix.format_map(values)) if broken(values) else None

    return ConfigRule(code, check)


def option(code: str, key: str, options: tuple[str, ...], kind: str) -> ConfigRule:
    """A rule that a text is one of several. `kind` is what they are, for the message."""
    fix = f"Use {', '.join(options)}."
    return rule(code, key, lambda values: values.text(key) not in (None, *options), f"'{{{key}}}' is not {kind}", fix)
