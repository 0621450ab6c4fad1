"""Findings about LoRA adapters on this machine: the raw `lora_ckpt_json`, and the directories that it names.

Source: NxDI 0.10, modules/lora_serving/config.py: missing paths (:87), the list for the host (:122), more adapters than
max_cpu_loras (:161), and directories without adapter_config.json (:186). The default is max_cpu_loras = max_loras = 1
(vLLM 0.16, config/lora.py).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Final

from handler.config.endpoint_config import EndpointConfig
from handler.config.finding import Finding, Severity
from handler.json_value import Json, json_object, mapping
from handler.regular_files import exists, open_regular

LORA_FILE: Final = "lora_ckpt_json"
LARGEST: Final = 1 << 20  # bytes of that file
LISTS: Final = ("lora-ckpt-paths", "lora-ckpt-paths-cpu")


def adapter_findings(config: EndpointConfig) -> tuple[Finding, ...]:
    """What NxD Inference would refuse of the adapters that are files on this machine."""
    path, host = config.neuron_config.get(LORA_FILE), config.engine_args.get("max_cpu_loras")
    most = host if isinstance(host, int) else config.max_loras or 1
    return tuple(_listed(path, most, config.raw_key(LORA_FILE), config)) if isinstance(path, str) else ()


def listed_adapters(config: EndpointConfig) -> dict[str, str]:
    """The adapters that the raw `lora_ckpt_json` names, and their paths. Empty without one."""
    path = config.neuron_config.get(LORA_FILE)
    document = _document(Path(path)) if isinstance(path, str) else {}
    directory = Path(str(document.get("lora-ckpt-dir", ".")))
    return {name: str(directory / str(where)) for part in LISTS for name, where in mapping(document.get(part)).items()}


def _document(path: Path) -> Mapping[str, Json]:
    try:
        with open_regular(path, limit=LARGEST) as file:
            return json_object(file.read()) or {}
    except OSError:
        return {}


def _listed(path: str, most: int, setting: str, config: EndpointConfig) -> Iterator[Finding]:
    if not exists(Path(path)) or not Path(path).is_file():
        yield _missing(path, setting, config)
        return
    document = _document(Path(path))
    lists = [document.get(name) for name in LISTS]
    if not all(isinstance(listed, dict) for listed in lists):
        why = f"{path} is not a JSON object with {' and '.join(LISTS)}, each an object of names and paths"
        yield _error(setting, why, "Correct it, or set lora_modules instead: the file is then written for you.")
        return
    adapters = listed_adapters(config)
    if len(adapters) > most:
        why = f"{path} names {len(adapters)} adapters, and the host keeps {most} (max_cpu_loras, else max_loras)"
        yield _error(setting, why, f"Set max_cpu_loras to {len(adapters)}.")
    for name, where in adapters.items():
        yield from _adapter(name, Path(where), setting, config)


def _adapter(name: str, path: Path, setting: str, config: EndpointConfig) -> Iterator[Finding]:
    if not exists(path):
        yield _missing(str(path), setting, config)
    elif path.is_dir() and not (path / "adapter_config.json").is_file():
        why = f"adapter '{name[:60]}' at {path} has no adapter_config.json"
        yield _error(setting, why, "Give the directory that PEFT saved the adapter to.")


def _missing(path: str, setting: str, config: EndpointConfig) -> Finding:
    """An error only if the plan is for this machine."""
    severity = Severity.ERROR if config.instance is None else Severity.WARNING
    why = f"there is no {path[:200]} on this machine, and the engine does not start without it"
    return Finding("lora-file-missing", severity, setting, why, "Put it where the endpoint runs, or set lora_modules.")


def _error(setting: str, why: str, fix: str) -> Finding:
    return Finding("lora-file", Severity.ERROR, setting, why, fix)
