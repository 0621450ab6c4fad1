"""Network isolation: a setting that needs the network is rejected at the start, instead of ending in a timeout.

SageMaker's `EnableNetworkIsolation` cuts a container off without telling it. ENDPOINT_NETWORK_ISOLATION tells it.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path

from handler.config.endpoint_config import EndpointConfig
from handler.config.loading.file_reader import Fetch
from handler.config.loading.model_file_rules import values_in
from handler.config.problems import BadValue
from handler.config.tracing_settings import is_local
from handler.config.values import to_bool
from handler.errors import SettingError
from handler.regular_files import exists

VARIABLE = "ENDPOINT_NETWORK_ISOLATION"
FIX = "Put it under /opt/ml/model, or into an additional model data source, and give its path."
# Variables that Hugging Face's libraries read.
OFFLINE: Mapping[str, str] = {"HF_HUB_OFFLINE": "1", "TRANSFORMERS_OFFLINE": "1", "HF_DATASETS_OFFLINE": "1"}
# Fields that hold a location -> whether the value may be a model id of the hub.
LOCATIONS: Mapping[str, bool] = {
    "model": True,
    "speculative_model": True,
    "compiled_artifacts": False,
    "artifact_store": False,
    "batch_store": False,
    "artifact_signing_key": False,
    "quantized_checkpoints_path": False,
}
# Engine arguments that hold a path or a model id of the hub, and words of vLLM in place of one (vllm/config/model.py).
ARGUMENTS = ("tokenizer", "generation_config", "hf_config_path")
OWN_WORDS = ("auto", "vllm", "ngram", "[ngram]")
# Fields that hold the settings of others, in which S3 may be named at any depth.
MAPPINGS = ("engine_args", "neuron_config", "text_neuron_config", "vision_neuron_config", "neuron_env")
REMOTE = ("s3://", "arn:", "http://", "https://", "hf://")


def problems(config: EndpointConfig) -> Iterator[SettingError]:
    """An error for each setting that needs the network."""
    if not config.network_isolation:
        return
    for field, hub in LOCATIONS.items():
        value = getattr(config, field)
        if value is not None and is_remote(value, hub=hub):
            yield problem(config.source(field).name or f"ENDPOINT_{field.upper()}", value)
    places = {name: config.engine_args.get(name) for name in ARGUMENTS}
    speculation = config.engine_args.get("speculative_config")
    places["speculative_config.model"] = speculation.get("model") if isinstance(speculation, dict) else None
    for name, place in places.items():
        if isinstance(place, str) and place not in OWN_WORDS and is_remote(place, hub=True):
            outer, dot, key = name.partition(".")
            yield problem(f"{config.setting(outer)}{dot}{key}", place)
    for field in MAPPINGS:
        for path, inner in values_in(getattr(config, field) or {}):
            if path not in places and str(inner).startswith(("s3://", "hf://")):
                yield problem(str(config.sources.get(f"{field}.{path.partition('.')[0]}") or field), str(inner))
    collector = config.engine_args.get("otlp_traces_endpoint")
    if isinstance(collector, str) and not is_local(collector):
        setting, why = config.setting("otlp_traces_endpoint"), f"'{collector[:200]}' cannot be reached"
        yield SettingError(setting, f"{why}, and {VARIABLE} is set", "Send traces to this machine, or remove it.")
    if config.requirements == "download":
        setting, fix = config.setting("requirements"), "Put wheels into requirements/ beside it, and leave this out."
        yield SettingError(setting, f"nothing can be downloaded with network isolation ({VARIABLE})", fix)
    for name, place in config.lora_modules.items():
        if is_remote(place, hub=True):
            yield problem(f"{config.source('lora_modules').name or 'ENDPOINT_LORA_MODULES'}.{name}", place)


def is_remote(place: str, *, hub: bool) -> bool:
    """Whether a location is not on this machine. With `hub` a name that is not a path is a model id of the hub."""
    if place.lower().startswith(REMOTE):
        return True
    return hub and not place.startswith(("/", "./", "../", "file://")) and not exists(Path(place))


def isolated(environ: Mapping[str, str]) -> bool:
    """Whether the container is isolated. Known before anything is read, so that no document is fetched.

    An invalid value counts as true here; reading the settings reports it.
    """
    try:
        return to_bool(environ.get(VARIABLE, "").strip() or "false")
    except BadValue:
        return True


def without_network(fetch: Fetch) -> Fetch:
    """A `Fetch` that reads files on disk only and finds nothing else. `problems` reports the setting."""

    def local(location: str) -> bytes | None:
        return None if is_remote(location, hub=False) else fetch(location)

    return local


def problem(setting: str, value: str) -> SettingError:
    return SettingError(setting, f"'{value[:200]}' is not on this machine, and {VARIABLE} is set", FIX)
