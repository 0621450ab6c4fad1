"""Reads a configuration into a `PlanRequest`, in which each part has one spelling."""

from __future__ import annotations

import json
from dataclasses import replace
from functools import lru_cache
from typing import Any, Final

from handler.config.dialects.vllm_names import HYPHENATED, NEURON_CONFIGS, SPECULATIVE
from handler.config.endpoint_config import EndpointConfig
from handler.config.fields import fields
from handler.config.finding import Finding, Severity
from handler.config.vllm_argument_table import known
from handler.json_value import Json
from handler.neuron.neuron_config.keys import KEYS
from handler.neuron.plan_request import PlanRequest, conflict

RAW_NAMES: Final = (*NEURON_CONFIGS, *HYPHENATED)
# vLLM 0.29's separate flags -> keys of `speculative_config`.
SPECULATIVE_FLAGS: Final = {"spec_method": "method", "spec_model": "model", "spec_tokens": "num_speculative_tokens"}
TYPES: Final[dict[str, type]] = {"str": str, "int": int, "bool": bool}


@lru_cache(maxsize=1)
def plain_arguments() -> dict[str, type]:
    """Engine arguments that have a field of the same name and a single value -> the type of the value."""
    return {
        name: TYPES[field.kind]
        for name, field in fields().items()
        if name in known() and field.kind in TYPES and not field.metadata.secret
    }


def read_request(config: EndpointConfig) -> tuple[PlanRequest, list[Finding]]:
    """Reads a configuration.

    Findings are wrong types, broken JSON, spellings that the plugin would ignore, and settings with two values.
    """
    reader = _Reader(config)
    reader.read()
    return reader.request(), reader.findings


class _Reader:
    def __init__(self, config: EndpointConfig) -> None:
        self.config = config
        self.findings: list[Finding] = []
        self.raw: dict[str, Json] = {}
        self.named_by: dict[str, str] = {}
        self.additional: dict[str, Json] = {}
        self.speculative: dict[str, Json] = {}
        self.extra: dict[str, Json] = {}
        self.fields: dict[str, Any] = {}

    def read(self) -> None:
        self._take_raw("neuron_config", dict(self.config.neuron_config), "")
        for given, value in self.config.engine_args.items():
            name = given.replace("-", "_")
            if name in NEURON_CONFIGS:
                self._take_raw(given, value, given)
            elif name == "additional_config":
                self._take_additional(given, value)
            elif name == "speculative_config":
                self._take_speculative(given, value)
            elif name in plain_arguments():
                if value is not None:
                    self._take_plain(name, value, plain_arguments()[name], self._argument(given))
            else:
                self.extra[name] = value
        flags = {key: self.extra.pop(flag) for flag, key in SPECULATIVE_FLAGS.items() if flag in self.extra}
        if flags:
            self.named_by.setdefault("speculative_config", self._argument("spec_method"))
            self._take_speculative("spec_method", flags)

    def request(self) -> PlanRequest:
        config = replace(self.config, **self.fields) if self.fields else self.config
        env = dict(self.config.neuron_env)
        return PlanRequest(config, self.raw, self.additional, self.speculative, self.extra, env, self.named_by)

    def _argument(self, name: str) -> str:
        return self.config.source(f"engine_args.{name}").name or self.config.source("engine_args").name or name

    def _object(self, name: str, value: Json) -> dict[str, Json] | None:
        """An object, or the JSON text of one; None (with a finding) for anything else."""
        if isinstance(value, str):
            try:
                value = json.loads(value)
            except (ValueError, RecursionError):
                value = None
        if isinstance(value, dict):
            return value
        why = "it is not a JSON object, and vLLM would reject it"
        fix = "Give one JSON object, with double quotes and true, false and null in lower case."
        self.findings.append(Finding("broken-json", Severity.ERROR, name, why, fix))
        return None

    def _take_additional(self, given: str, value: Json) -> None:
        setting = self._argument(given)
        content = self._object(setting, value) if value is not None else {}
        for key, section in (content or {}).items():
            if key in RAW_NAMES:
                if "-" in key:
                    why = f"the plugin ignores '{key}' in additional_config, although the guide prints it with hyphens"
                    fix = f"Write '{key.replace('-', '_')}'. This endpoint has read it as that."
                    self._warn("hyphenated-override", f"{setting}.{key}", why, fix)
                self._take_raw(f"{setting}.{key}", section, f"{setting}.{key}")
            else:
                self.additional[key] = section

    def _take_raw(self, name: str, value: Json, prefix: str) -> None:
        if value is None:
            return
        content = self._object(name, value)
        for given, item in (content or {}).items():
            key = given
            if "-" in given and given.replace("-", "_") in KEYS:
                key = given.replace("-", "_")
                why = f"NxD Inference ignores the key '{given}': its keys have underscores"
                self._warn(
                    "hyphenated-key", f"{name}.{given}", why, f"Write '{key}'. This endpoint has read it as that."
                )
            if prefix:
                self.named_by.setdefault(f"neuron_config.{key}", f"{prefix}.{given}")
            if key in self.raw and self.raw[key] != item:
                self._conflict(f"{name}.{given}", item, f"neuron_config.{key}", self.raw[key])
            self.raw[key] = item

    def _take_speculative(self, given: str, value: Json) -> None:
        setting = self._argument(given)
        content = self._object(setting, value) if value is not None else {}
        method = (content or {}).get("method")
        if isinstance(method, str) and method not in fields()["speculation"].metadata.choices:
            self.extra["speculative_config"] = content
            return
        for key, item in (content or {}).items():
            if key in SPECULATIVE and item is not None:
                name = SPECULATIVE[key]
                self._take_plain(name, item, TYPES[fields()[name].kind], f"{setting}.{key}")
            else:
                self.speculative[key] = item

    def _take_plain(self, name: str, value: Json, kind: type, setting: str) -> None:
        if not isinstance(value, kind) or (kind is int and isinstance(value, bool)):
            word = {int: "a whole number", bool: "true or false", str: "a string"}[kind]
            why = f"{str(value)[:60]!r} is not {word}"
            self.findings.append(Finding("wrong-type", Severity.ERROR, setting, why, f"Give {word}."))
            return
        given = self.fields.get(name, getattr(self.config, name))
        explicit = name in self.config.sources or name in self.fields
        if given is not None and given != value and (explicit or given not in (False, "/opt/ml/model")):
            self._conflict(setting, value, self.config.source(name).name or name, given)
            return
        self.fields[name] = value
        self.named_by.setdefault(name, setting)

    def _warn(self, code: str, setting: str, why: str, fix: str) -> None:
        self.findings.append(Finding(code, Severity.WARNING, setting, why, fix))

    def _conflict(self, one: str, value: Json, other: str, given: object) -> None:
        self.findings.append(conflict(one, value, other, given))
