"""Loads the configured LoRA adapters at the start, and fetches adapters that are loaded later."""

from __future__ import annotations

import shutil
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from handler.config.endpoint_config import EndpointConfig
from handler.config.loading.network_isolation import VARIABLE, is_remote
from handler.engine.engine import Engine
from handler.errors import EndpointError, InvalidField, SettingError
from handler.model.model_source import download
from handler.neuron.checkpoint.adapter_files import model_modules
from handler.neuron.engine_plan import EnginePlan
from handler.neuron.lines.lora import BASE_ADAPTER, base_adapter_directory

AT_THE_START_ONLY = "this Neuron line loads adapters only at the start: name them in ENDPOINT_LORA_MODULES"


def load_adapters(
    engine: Engine, plan: EnginePlan, config: EndpointConfig, moved: Mapping[str, str], stage: Callable[[str], None]
) -> None:
    """Loads the configured adapters. On a Neuron line the engine has them already, and they are only listed.

    :param moved: for each fetched adapter, its configured address and its directory.
    :raises SettingError: an adapter cannot be loaded. The error names it.
    """
    if engine.facts.adapters is None:
        return
    directory = config.scratch / "adapters"
    fetched, copies = dict(moved), threading.Lock()

    @contextmanager
    def brought(source: str) -> Iterator[Path]:
        """What is downloaded later is deleted once it is copied. Another load of the same files may come first.

        A whole model stays: another request may be loading it from the same directory.
        """
        place = fetched.get(source, source)
        found = bring(place, config)
        with copies:
            try:
                yield found if found.is_dir() else bring(place, config)
            finally:
                if place.startswith("s3://") and not (found / "config.json").is_file():
                    shutil.rmtree(found, ignore_errors=True)

    adapters = engine.with_adapters(directory, config.max_adapters, brought)
    setting = config.source("lora_modules").name or "ENDPOINT_LORA_MODULES"
    stage("load adapters")
    if plan.line == "cpu":
        adapters.modules = model_modules(str(plan.engine_args["model"]))
        adapters.load_empty(Path(str(plan.engine_args["model"])))
    elif plan.line.startswith("nxdi"):
        base = base_adapter_directory(config)
        adapters.declare_base(BASE_ADAPTER, str(base) if base.is_dir() else None)
    for name, source in config.lora_modules.items():
        if plan.line != "cpu":
            adapters.declare(name, moved.get(source, source))
            continue
        try:
            adapters.load(name, source)
        except EndpointError as error:
            fix = "Fix the adapter, or remove it from the setting."
            raise SettingError(setting, error.message.rstrip("."), fix) from None
    fetched.clear()  # who loads one later wants what is there then
    if plan.line != "cpu":
        adapters.fixed = AT_THE_START_ONLY


def bring(source: str, config: EndpointConfig, field: str = "src") -> Path:
    """The directory of an adapter or a model. One in S3 is downloaded.

    :param field: the request's field that names it.
    :raises EndpointError: it cannot be downloaded.
    """
    if config.network_isolation and is_remote(source, hub=False):
        raise InvalidField(field, f"it is not on this machine, and {VARIABLE} forbids fetching it")
    try:
        if source.startswith("s3://"):
            return download(source, config, field, latest=True)
        Path(source).stat()
    except FileNotFoundError:
        pass  # whoever reads it says what is missing
    except SettingError as error:
        raise InvalidField(field, error.problem[:300]) from None
    except (OSError, ValueError):  # too long for a path, or a NUL character
        raise InvalidField(field, f"'{source[:60]}' is no directory") from None
    return Path(source)
