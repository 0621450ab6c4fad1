"""What `EndpointConfig`'s fields take: kind, bounds and choices, derived from the dataclass itself.

A field that is added to the dataclass has its `ENDPOINT_<FIELD>` variable, its document key and its row in
`config explain` at once.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

from handler.config import port_range as ports
from handler.config.endpoint_config import MIB, EndpointConfig
from handler.config.problems import BadValue
from handler.config.values import clean, shown, to_bool, to_float, to_int, to_list, to_mapping, to_str
from handler.json_value import Json

# Filled in by the loader, or not settings at all.
NOT_SETTINGS = frozenset({"sources", "overridden", "unused"})
# Mappings that several sources fill together, key by key.
MERGED = frozenset({"engine_args", "neuron_config", "neuron_env", "unused"})
INT_BOUNDS = (1, 2**31 - 1)
BOUNDS: Mapping[str, tuple[float, float]] = {
    "front_ends": (1, 64),
    "port": (0, 65535),
    "max_concurrent": (1, 4096),
    "max_body": (1, 1024 * MIB),
    "drain": (0, 3600),
    "stall": (1, 3600),
    "artifact_lease": (2, 3600),
    "engine_restarts": (0, 1000),
    "max_queue": (0, 65536),
    "prefill_tokens": (0, 2**31 - 1),
    "deadline": (1, 86400),
    "stream_deadline": (1, 86400),
    "max_payload_mb": (1, 100),
    "max_sessions": (1, 1_000_000),
    "session_expiration": (1, 604_800),
    "logical_nc_config": (1, 2),
    "max_sequences": (1, 4096),
}
CHOICES: Mapping[str, tuple[str, ...]] = {
    "dtype": ("bfloat16", "float16", "float32"),
    "speculation": ("draft_model", "eagle", "eagle3", "medusa"),
    "disaggregation": ("prefill", "decode"),
    "engine": ("vllm", "none"),
    "inputs_schema": ("lmi", "tgi"),
    "output_formatter": ("json", "jsonlines", "sse"),
    "log_format": ("json", "text"),
    "on_miss": ("compile", "fail", "wait"),
    "batch_strategy": ("SingleRecord", "MultiRecord"),
    "chat_template_content_format": ("auto", "string", "openai"),
}
# Other spellings of the same value: vLLM's, LMI's, NxDI's, transformers-neuronx's.
SPELLINGS: Mapping[str, Mapping[str, str]] = {
    "dtype": {
        **dict.fromkeys(("bf16", "torch.bfloat16"), "bfloat16"),
        **dict.fromkeys(("fp16", "f16", "half", "torch.float16"), "float16"),
        **dict.fromkeys(("fp32", "f32", "float", "torch.float32"), "float32"),
    },
    "quantization": {
        **dict.fromkeys(("s8", "static_int8", "neuron_quant", "torch.int8"), "int8"),
        **dict.fromkeys(("f8e4m3", "f8e4m3fn", "float8_e4m3fn", "fp8_e4m3", "torch.float8_e4m3fn"), "fp8"),
    },
}
# Words that say "decide for me".
UNDECIDED: Mapping[str, str] = {"dtype": "auto", "max_model_len": "auto", "tensor_parallel_size": "max"}

KINDS: Mapping[str, Callable[[Json], object]] = {
    "str": to_str,
    "bool": to_bool,
    "int": to_int,
    "float": to_float,
    "Path": lambda value: Path(to_str(value)),
    "tuple[str, ...]": lambda value: to_list(value, to_str),
    "tuple[int, ...]": lambda value: to_list(value, _positive),
    "Mapping[str, str]": lambda value: {key: to_str(item) for key, item in to_mapping(value).items()},
    "Mapping[str, Json]": to_mapping,
}


@dataclass(frozen=True, slots=True)
class FieldKind:
    """One field. `kind` is a key of KINDS; `doc` and `secret` are the dataclass's own metadata."""

    name: str
    kind: str
    default: object
    doc: str
    secret: bool

    def convert(self, value: Json) -> object:
        """The typed value; None where the value leaves the decision to the line or the instance.

        :raises BadValue: it is of another kind, out of range, or none of the choices. Never holds a secret's text.
        """
        try:
            return self._convert(value)
        except BadValue as bad:
            if self.secret:
                raise BadValue("the value is not a text", "Give a text") from None
            raise BadValue(bad.problem, self._expected() or bad.fix) from None

    def _convert(self, value: Json) -> object:
        if value is None and self.default is None:
            return None
        if isinstance(value, str):
            value = SPELLINGS.get(self.name, {}).get(clean(value).strip().lower(), value)
            if value == UNDECIDED.get(self.name):
                return None
        converted = KINDS[self.kind](value)
        bounds = self.bounds()
        if bounds and isinstance(converted, (int, float)) and not bounds[0] <= converted <= bounds[1]:
            raise BadValue(f"{shown(value)} is out of range", "Give another")
        if self.name == "safe_port_range":
            ports.parse(str(converted))
        choices = CHOICES.get(self.name)
        if choices and converted not in choices:
            raise BadValue(f"{shown(value)} is none of its values", "Give another")
        return converted

    def bounds(self) -> tuple[float, float] | None:
        return BOUNDS.get(self.name, INT_BOUNDS if self.kind == "int" else None)

    def _expected(self) -> str:
        bounds, choices = self.bounds(), CHOICES.get(self.name)
        if choices:
            return f"Give {', '.join(choices[:-1])} or {choices[-1]}"
        if bounds:
            return f"Give {'a whole number' if self.kind == 'int' else 'a number'} from {bounds[0]} to {bounds[1]}"
        return ""


@lru_cache(maxsize=1)
def fields() -> Mapping[str, FieldKind]:
    """Every field that can be set, by name."""
    return {
        field.name: FieldKind(
            name=field.name,
            kind=str(field.type).removesuffix(" | None"),
            default=field.default if field.default_factory is dataclasses.MISSING else field.default_factory(),
            doc=str(field.metadata.get("doc", "")),
            secret=bool(field.metadata.get("secret", False)),
        )
        for field in dataclasses.fields(EndpointConfig)
        if field.name not in NOT_SETTINGS
    }


def _positive(value: Json) -> int:
    number = to_int(value)
    if not INT_BOUNDS[0] <= number <= INT_BOUNDS[1]:
        raise BadValue(f"{shown(value)} is out of range", "Give whole numbers above 0, between commas")
    return number
