"""The way of a start, after the port is bound: bring the model, start the engine, warm it up, be ready."""

from __future__ import annotations

import gc
import logging
import os
from dataclasses import replace
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING

from container.pipeline.custom_code_reply import load_custom_code, prepared_code
from container.requests.http_limits import places
from container.service import Service
from handler.artifacts.restore.scratch_directory import SETTING, require_scratch
from handler.config.dialects.sagemaker import BASE
from handler.config.endpoint_config import EndpointConfig
from handler.config.finding import Severity
from handler.config.problems import SettingErrors
from handler.engine.engine import Engine
from handler.engine.launch import launch
from handler.engine.warmup import warm_up
from handler.errors import EndpointError, SettingError
from handler.json_value import Json
from handler.model.companions import bring_companions
from handler.model.model_source import Model, bring
from handler.neuron.engine_plan import EnginePlan
from handler.neuron.hardware.installed_packages import installed_versions
from handler.neuron.lines.line_registry import installed_line
from handler.neuron.planning.examination import examine_config
from handler.start_failure import in_one_line
from handler.startup.adapter_loading import load_adapters
from handler.startup.artifact_search import engine_by_artifacts, engine_over_tier
from handler.startup.given_artifacts import with_given_artifacts
from handler.startup.progress_display import of_bytes, shown
from handler.startup.start_errors import told

if TYPE_CHECKING:  # it starts models by what is here
    from handler.startup.multi_model.model_registry import Models

logger = logging.getLogger(__name__)
LEVELS = {Severity.ERROR: logging.ERROR, Severity.WARNING: logging.WARNING, Severity.INFO: logging.INFO}


def start(service: Service) -> None:
    """Brings the service from STARTING to READY, or to FAILED with the reason. Runs in a thread of its own."""
    config, lifecycle = service.config, service.lifecycle
    try:
        lifecycle.stage("check configuration")
        if without_model(config):
            lifecycle.stage("import vLLM")  # or whoever asks for the first model would wait for it
            use_environment(EnginePlan("cpu", {}))
            import_module("handler.engine.vllm_api.core.core")
            service.models = models_of(service, None)
            settle()
            lifecycle.ready()
            return
        plan = checked_plan(config) if config.engine != "none" else None
        if config.artifact_store or config.lora_modules or config.model.startswith("s3://"):
            require_scratch(config.scratch, config.source("scratch").name or SETTING)
        lifecycle.stage("fetch model")
        with shown(lifecycle, "fetch model") as progress:
            model = bring(config, of_bytes(progress))
        code = prepared_code(service, model)
        if plan is None:
            load_custom_code(service, code)
            lifecycle.ready()
            return
        if config.lora_modules or config.speculative_model or config.quantized_checkpoints_path:
            lifecycle.stage("fetch adapters and draft")
        with shown(lifecycle, "fetch adapters and draft") as progress:
            companions = bring_companions(config, of_bytes(progress), compiled_in=plan.line != "cpu")
        plan = with_given_artifacts(service, companions.rewritten(with_model(plan, model)))

        def engine_of(plan: EnginePlan) -> Engine:
            use_environment(plan)
            if service.peers is not None:
                service.peers.planned(plan, model)
            engine = service.engine = launch(plan, config, lifecycle.stage)
            lifecycle.stage("warm up")
            warm_up(engine)
            notes = None if service.peers is None else service.peers.adapter_notes
            load_adapters(engine, plan, config, companions.moved, lifecycle.stage, notes)
            service.admission.limit = places(config, engine.slots)
            if config.multi_model:
                service.models = models_of(service, plan)
            if config.enable_sessions and not engine.caches_prefixes():
                logger.warning("sessions are sticky, but without prefix caching each turn computes its whole prompt")
            return engine

        if not config.artifact_store or config.compiled_artifacts:
            told(engine_of)(plan)
        else:
            way = engine_by_artifacts if model.size else engine_over_tier
            way(service, plan, Path(model.path), companions, engine_of)
        load_custom_code(service, code)
        if service.peers is not None and service.engine is not None:
            lifecycle.stage("start front ends")
            service.peers.gather(service.engine)
        settle()
        lifecycle.ready()
    except EndpointError as error:
        lifecycle.fail(error.message)
    except BaseException as error:
        # The engine's core has printed its own account; a traceback helps whoever reads the log, not a client.
        logger.exception("the start failed")
        lifecycle.fail(f"{lifecycle.status.stage}: {type(error).__name__}: {in_one_line(error)}")


def settle() -> None:
    """What the imports and the start have made lives as long as the process: without this, collecting garbage walks all
    of it, and every token and every /ping waits a quarter of a second for that."""
    gc.collect()
    gc.freeze()


def without_model(config: EndpointConfig) -> bool:
    """A multi-model endpoint that SageMaker starts with no model: all of them come by POST /models.

    :raises SettingError: they could not be served here.
    """
    given = config.source("model").name not in {"", BASE}
    directory = Path(config.model)
    if not config.multi_model or config.engine == "none" or given or (directory.is_dir() and any(directory.iterdir())):
        return False
    line = config.line or installed_line(installed_versions())
    if line != "cpu":
        problem = f"there is no model in {directory}, and on the line {line} all models are adapters of one"
        raise SettingError("SAGEMAKER_MULTI_MODEL", problem, "Set ENDPOINT_MODEL and ENDPOINT_ENABLE_LORA=true.")
    if config.front_ends > 1:
        setting = config.source("front_ends").name or "ENDPOINT_FRONT_ENDS"
        raise SettingError(setting, "without a model of the start there is no engine to share", "Set it to 1.")
    return True


def models_of(service: Service, plan: EnginePlan | None) -> Models:
    """:param plan: of the engine that runs already."""
    from handler.startup.multi_model.memory_budget import need_of
    from handler.startup.multi_model.model_registry import Models

    return Models(service, None if plan is None else need_of(Path(str(plan.engine_args["model"])), plan))


def use_environment(plan: EnginePlan) -> None:
    """Sets what vLLM and the Neuron software read when they are imported."""
    os.environ.setdefault("VLLM_MEDIA_URL_ALLOW_REDIRECTS", "0")  # an allowed host may not send it elsewhere
    os.environ.update(plan.env)


def checked_plan(config: EndpointConfig) -> EnginePlan:
    """The plan of a configuration that can work; what was found on the way is logged.

    :raises SettingErrors: every finding that would end in a failure, an hour from now.
    """
    examination = examine_config(config)
    if examination.vllm is not None:
        logger.info("%s", examination.vllm)
    for finding in examination.findings:
        logger.log(
            LEVELS[finding.severity], "[%s] %s: %s. %s", finding.code, finding.setting, finding.why, finding.mend
        )
    if examination.plan is None or examination.failed:
        errors = [finding for finding in examination.findings if finding.severity is Severity.ERROR]
        raise SettingErrors([SettingError(error.setting, error.why, error.mend) for error in errors])
    return examination.plan


def with_model(plan: EnginePlan, model: Model) -> EnginePlan:
    """The plan for a model that is on this machine now; it is served by the name it was configured by."""
    arguments: dict[str, Json] = {"served_model_name": [model.name], **plan.engine_args, "model": model.path}
    return replace(plan, engine_args=arguments)
