"""Reads an `EndpointConfig` from an environment: a pure translator, tested without a process.

Names that people already use are translated: `SM_VLLM_*` (the AWS vLLM image), `HF_MODEL_ID`, `SAGEMAKER_BIND_TO_PORT`.
Other people's variables are theirs and left alone; an unknown name under our own prefix is an error.
"""

from __future__ import annotations

import difflib
import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TypeVar

from handler.config.endpoint import MIB, EndpointConfig, EngineArgument
from handler.errors import SettingError

PREFIX = "ENDPOINT_"
VLLM_PREFIX = "SM_VLLM_"
MODEL_SETTINGS = ("ENDPOINT_MODEL", "SM_VLLM_MODEL", "HF_MODEL_ID")
KNOWN = (
    "ENDPOINT_MODEL",
    "ENDPOINT_SCRATCH",
    "ENDPOINT_MAX_CONCURRENT",
    "ENDPOINT_MAX_BODY_MB",
    "ENDPOINT_DRAIN",
    "ENDPOINT_STALL",
    "ENDPOINT_ENGINE_RESTARTS",
    "ENDPOINT_LOG_REQUESTS",
)
# Set by the container itself: the HTTP side is ours, and what would open vLLM's own is refused by name.
NOT_OURS_TO_PASS = ("host", "port", "uvicorn-log-level", "ssl-keyfile", "ssl-certfile", "api-server-count")

Number = TypeVar("Number", int, float)


def read(environ: Mapping[str, str]) -> EndpointConfig:
    """The configuration that an environment asks for.

    :raises SettingError: naming the variable, what is wrong with it and the mend.
    """
    _refuse_unknown(environ)
    base = Path(environ.get("SAGEMAKER_BASE_DIR") or "/opt/ml")
    model, model_setting = _model(environ, base / "model")
    return EndpointConfig(
        model=model,
        model_setting=model_setting,
        engine_arguments=tuple(_engine_arguments(environ)),
        scratch=Path(environ.get("ENDPOINT_SCRATCH") or "/tmp/neuron-endpoint"),  # noqa: S108
        port=_number(environ, "SAGEMAKER_BIND_TO_PORT", int, 8080, low=0, high=65535),
        max_concurrent=_number(environ, "ENDPOINT_MAX_CONCURRENT", int, 1024, low=1, high=4096),
        max_body=_number(environ, "ENDPOINT_MAX_BODY_MB", int, 25, low=1, high=1024) * MIB,
        drain=_number(environ, "ENDPOINT_DRAIN", float, 25.0, low=0.0, high=3600.0),
        stall=_number(environ, "ENDPOINT_STALL", float, 6.0, low=1.0, high=3600.0),
        engine_restarts=_number(environ, "ENDPOINT_ENGINE_RESTARTS", int, 3, low=0, high=1000),
        log_requests=_flag(environ, "ENDPOINT_LOG_REQUESTS"),
    )


def _refuse_unknown(environ: Mapping[str, str]) -> None:
    for name in environ:
        if name.startswith(PREFIX) and name not in KNOWN:
            near = difflib.get_close_matches(name, KNOWN, n=1, cutoff=0.5)
            mend = f"Did you mean {near[0]}?" if near else f"Known: {', '.join(KNOWN)}."
            raise SettingError(name, "is not a setting of this endpoint", mend)


def _model(environ: Mapping[str, str], default: Path) -> tuple[str, str]:
    """One model from whichever names are set; the same setting given two ways with two values is an error."""
    given = [(name, environ[name]) for name in MODEL_SETTINGS if environ.get(name)]
    if not given:
        return str(default), "SAGEMAKER_BASE_DIR" if "SAGEMAKER_BASE_DIR" in environ else "the default"
    (first, value), *others = given
    for name, other in others:
        if other != value:
            raise SettingError(name, f"says '{other}', but {first} says '{value}'", "Keep one of the two.")
    return value, first


def _engine_arguments(environ: Mapping[str, str]) -> list[EngineArgument]:
    """`SM_VLLM_MAX_NUM_SEQS=64` -> `--max-num-seqs 64`; `true` -> the flag; `false` -> `--no-...`; JSON lists repeat.

    The AWS vLLM image drops `false`, which leaves prefix caching on when it was switched off:
    here a false flag is passed as vLLM's own `--no-` form.
    """
    arguments = []
    for setting in sorted(environ):
        if not setting.startswith(VLLM_PREFIX) or setting in MODEL_SETTINGS:
            continue
        name = setting.removeprefix(VLLM_PREFIX).lower().replace("_", "-")
        value = environ[setting].strip()
        if name in NOT_OURS_TO_PASS:
            mend = "Use SAGEMAKER_BIND_TO_PORT." if name == "port" else "Leave it out."
            raise SettingError(setting, "is decided by the container", mend)
        if value.lower() == "true":
            arguments.append(EngineArgument(name, (), setting))
        elif value.lower() == "false":
            arguments.append(EngineArgument(f"no-{name}", (), setting))
        else:
            arguments.append(EngineArgument(name, _values(setting, value), setting))
    return arguments


def _values(setting: str, value: str) -> tuple[str, ...]:
    if not value.startswith("["):
        return (value,)
    try:
        items = json.loads(value)
    except (ValueError, RecursionError) as error:
        raise SettingError(setting, f"starts like a JSON list but is none ({error})", "Mend the JSON.") from None
    if not items:
        raise SettingError(setting, "is an empty list", "Leave it out, or name something.")
    return tuple(item if isinstance(item, str) else json.dumps(item) for item in items)


def _number(
    environ: Mapping[str, str], name: str, cast: Callable[[str], Number], default: Number, *, low: Number, high: Number
) -> Number:
    text = environ.get(name, "").strip()
    if not text:
        return default
    kind = "a whole number" if cast is int else "a number"
    mend = f"Give {kind} from {low:g} to {high:g}."
    try:
        value = cast(text)
    except ValueError:
        raise SettingError(name, f"'{text}' is not {kind}", mend) from None
    if not low <= value <= high:
        raise SettingError(name, f"{text} is out of range", mend)
    return value


def _flag(environ: Mapping[str, str], name: str) -> bool:
    text = environ.get(name, "").strip().lower()
    if text not in {"", "true", "false", "1", "0"}:
        raise SettingError(name, f"'{text}' is neither true nor false", "Give true or false.")
    return text in {"true", "1"}
