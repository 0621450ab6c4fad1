"""Network isolation: a setting that would need the network fails at the start, by its name, instead of timing out.

SageMaker cuts a container off with `EnableNetworkIsolation` and does not tell it; so it is told by a setting.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path

from handler.config.endpoint_config import EndpointConfig
from handler.config.loading.file_reader import Fetch
from handler.config.problems import BadValue
from handler.config.values import to_bool
from handler.errors import SettingError

VARIABLE = "ENDPOINT_NETWORK_ISOLATION"
FIX = "Put it below /opt/ml/model, or into an additional model data source, and give its path."
# What Hugging Face's libraries read.
OFFLINE: Mapping[str, str] = {"HF_HUB_OFFLINE": "1", "TRANSFORMERS_OFFLINE": "1", "HF_DATASETS_OFFLINE": "1"}
# Fields that hold a place, each with whether the name of a hub's model may stand there.
PLACES: Mapping[str, bool] = {
    "model": True,
    "speculative_model": True,
    "compiled_artifacts": False,
    "artifact_store": False,
    "artifact_signing_key": False,
    "quantized_checkpoints_path": False,
}
REMOTE = ("s3://", "arn:", "http://", "https://", "hf://")


def problems(config: EndpointConfig) -> Iterator[SettingError]:
    """Each setting that an isolated container cannot fulfil."""
    if not config.network_isolation:
        return
    for field, hub in PLACES.items():
        value = getattr(config, field)
        if value is not None and is_remote(value, hub=hub):
            yield problem(config.source(field).name or f"ENDPOINT_{field.upper()}", value)
    for name, place in config.lora_modules.items():
        if is_remote(place, hub=True):
            yield problem(f"{config.source('lora_modules').name or 'ENDPOINT_LORA_MODULES'}.{name}", place)


def is_remote(place: str, *, hub: bool) -> bool:
    """It is not on this machine.

    :param hub: a name that is no path is a hub's.
    """
    if place.startswith(REMOTE):
        return True
    return hub and not place.startswith(("/", "./", "../", "file://")) and not Path(place).exists()


def isolated(environ: Mapping[str, str]) -> bool:
    """Asked before anything is read, so that no document is fetched either. A bad value is told of later."""
    try:
        return to_bool(environ.get(VARIABLE, "").strip() or "false")
    except BadValue:
        return True


def without_network(fetch: Fetch) -> Fetch:
    """The same for files on disk; whatever else is asked for is not there. `problems` says why, by the setting."""

    def local(location: str) -> bytes | None:
        return None if is_remote(location, hub=False) else fetch(location)

    return local


def problem(setting: str, value: str) -> SettingError:
    return SettingError(setting, f"{VARIABLE} is set, and '{value[:200]}' is not on this machine", FIX)
