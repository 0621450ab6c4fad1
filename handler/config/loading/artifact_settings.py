"""Reads the `neuron_config.json` of compiled artifacts as settings.

NxD Inference saves `{"neuron_config": {...}, ...model...}` (models/config.py, InferenceConfig.save);
optimum-neuron saves a flat object. Null values and keys without a field are ignored, because the artifacts are loaded
unchanged.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace

from handler.config.assignment import Assignment, assign
from handler.config.fields import fields
from handler.config.neuron_keys import saved_keys
from handler.config.value_source import Origin, ValueSource
from handler.errors import SettingError
from handler.json_value import Json

FILE = "neuron_config.json"


def of_artifacts(saved: Mapping[str, Json], where: str) -> Iterator[Assignment | SettingError]:
    """The settings that the artifacts were compiled with, as far as they have a field."""
    inner = saved.get("neuron_config")
    config = inner if isinstance(inner, dict) else saved
    done: set[str] = set()
    for key, field, value in _settings(config):
        if field in done or value is None or value == [] or (value == 0 and fields()[field].kind == "int"):
            continue
        done.add(field)
        try:
            yield replace(assign(field, value, key), source=ValueSource(Origin.ARTIFACTS, key, where))
        except SettingError as error:
            fix = "Compile again: neither NxD Inference nor optimum-neuron writes such a file."
            yield SettingError(f"{error.setting} in {where}", error.problem, fix)


def _settings(config: Mapping[str, Json]) -> Iterator[tuple[str, str, Json]]:
    for key, field in saved_keys():
        if key in config:
            yield key, field, config[key]
    if config.get("quantized") is True:
        yield "quantization_dtype", "quantization", config.get("quantization_dtype") or "int8"
    if config.get("enable_fused_speculation") is True:  # NxDI writes every key: false means that the feature is off
        yield "enable_fused_speculation", "fused_speculation", True
    if config.get("is_block_kv_layout") is True:
        yield "pa_block_size", "block_size", config.get("pa_block_size")
    if "on_device_sampling_config" in config:
        sampling = config["on_device_sampling_config"]
        yield "on_device_sampling_config", "on_device_sampling", sampling is not None
        if isinstance(sampling, dict):
            yield "on_device_sampling_config.global_topk", "global_topk", sampling.get("global_topk")
