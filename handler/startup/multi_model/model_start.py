"""Starts one model of a multi-model endpoint: settings, plan, engine, warm-up. A failure leaves nothing behind."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from handler.artifacts.lease.compile_errors import CompileFailed, CompileKilled
from handler.config.endpoint_config import EndpointConfig
from handler.config.loading.config_loader import load
from handler.custom_code.code_source import find_code
from handler.engine.engine import Engine
from handler.engine.event_loop import LoopThread
from handler.engine.launch import launch, stopped_on_failure
from handler.engine.warmup import warm_up
from handler.errors import EndpointError
from handler.model.model_source import Model
from handler.neuron.engine_plan import EnginePlan
from handler.neuron.hardware.current_machine import SPACE
from handler.neuron.planning.file_examination import require_sound_files
from handler.processes import current_environment
from handler.start_failure import OTHERWISE, fix_for
from handler.startup.adapter_loading import bring
from handler.startup.checked_plan import checked_plan, use_environment, with_model
from handler.startup.multi_model import model_errors
from handler.startup.multi_model.memory_budget import MemoryNeed, need_of
from handler.startup.start_diagnosis import diagnosed_start

CONFIG, ADAPTER_CONFIG = "config.json", "adapter_config.json"
# Settings that apply only to the model of the start, with their neutral values.
OF_THE_START: Mapping[str, Any] = {
    "enable_lora": None,
    "lora_modules": {},
    "speculative_model": None,
    "speculation": None,
    "num_speculative_tokens": None,
    "fused_speculation": None,
    "artifact_store": None,
}
CODE = "Set ENDPOINT_CUSTOM_CODE=false to serve it without its code, or give it an endpoint of its own."
SEPARATE = (
    "Give each model an endpoint or an inference component of its own, or serve LoRA adapters over one model "
    "(ENDPOINT_ENABLE_LORA=true, named in ENDPOINT_LORA_MODULES)"
)
NEURON = (
    "on this line ({line}) every engine needs NeuronCores of its own, and no setting divides an instance's cores "
    f"among the engines of one container. {SEPARATE}"
)


@dataclass(frozen=True, slots=True)
class PreparedModel:
    """A model that was read and checked, and whose engine can be started."""

    name: str
    config: EndpointConfig
    plan: EnginePlan
    need: MemoryNeed


Prepare = Callable[[EndpointConfig, str, Path], PreparedModel]
Start = Callable[[PreparedModel], Engine]


def whole_model(config: EndpointConfig, source: str) -> Path | None:
    """The directory of a model; None if it has an adapter, or neither. :raises EndpointError: it cannot be fetched."""
    directory = bring(source, config, "url")
    whole = (directory / CONFIG).is_file() and not (directory / ADAPTER_CONFIG).is_file()
    return directory.absolute() if whole else None


def prepare(config: EndpointConfig, name: str, path: Path) -> PreparedModel:
    """Reads and checks a model, as the start does. The environment's settings apply to every model.

    :raises EndpointError: the model cannot be served, or not in a multi-model endpoint.
    """
    try:
        if find_code(config, str(path)) is not None:
            raise model_errors.InvalidModel(
                name, "it has code of its own, which is supported only for the model of the start", CODE
            )
        # The plan of an earlier engine has set the size of its own cache.
        environ = {
            name: value for name, value in current_environment().items() if name != SPACE or SPACE in config.neuron_env
        }
        own = load(environ, model=str(path))
        own = replace(own, served_model_name=(name,), **OF_THE_START)
        require_sound_files(own, "url")
        plan = checked_plan(own)
        need = need_of(path, plan)
    except model_errors.InvalidModel:
        raise
    except EndpointError as error:
        raise model_errors.InvalidModel(name, error.message.rstrip("."), "Fix the model or the setting.") from None
    if plan.line != "cpu":
        raise model_errors.ModelsUnsupported(NEURON.format(line=plan.line))
    return PreparedModel(name, own, with_model(plan, Model(str(path), (name,), need.weights)), need)


def start(loop: LoopThread, prepared: PreparedModel) -> Engine:
    """Starts an engine and warms it up. 10 to 60 s on a CPU.

    :param loop: serves the engine.
    :raises ModelsFull: the system killed the engine's process, as it does when memory runs out.
    :raises ModelLoadFailed: the engine did not start for another reason.
    """
    name, before = prepared.name, current_environment()
    use_environment(prepared.plan)
    try:
        with diagnosed_start():
            return _launch(loop, prepared)
    except CompileKilled as failure:
        raise model_errors.ModelsFull(f"{failure.signal} ended the process that loaded '{name[:200]}'") from failure
    except CompileFailed as failure:
        known = fix_for(failure.reason)
        fix = "Fix its files or the settings." if known == OTHERWISE else known
        raise model_errors.ModelLoadFailed(name, f"{failure.reason}. {fix}") from failure
    except EndpointError as error:
        raise model_errors.ModelLoadFailed(name, error.message) from error
    finally:  # what a model's own files set is for its engine alone
        for variable in prepared.plan.env:
            if variable in before:
                os.environ[variable] = before[variable]
            else:
                os.environ.pop(variable, None)


def _launch(loop: LoopThread, prepared: PreparedModel) -> Engine:
    engine = launch(prepared.plan, prepared.config, loop, further=True)
    with stopped_on_failure(engine):
        engine.failure = model_errors.ModelFailed(prepared.name, "its process ended")
        warm_up(engine, prepared.plan)
    return engine
