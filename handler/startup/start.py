"""The way of a start, after the port is bound: bring the model, start the engine, warm it up, be ready."""

from __future__ import annotations

import gc
import logging
from importlib import import_module
from pathlib import Path

from handler.artifacts.restore.scratch_directory import SETTING, require_scratch
from handler.config.dialects.sagemaker import BASE
from handler.config.endpoint_config import EndpointConfig
from handler.engine.engine import Engine
from handler.engine.launch import launch
from handler.engine.warmup import warm_up
from handler.errors import EndpointError, SettingError
from handler.model.companions import bring_companions
from handler.model.model_source import bring
from handler.neuron.engine_plan import EnginePlan
from handler.neuron.hardware.installed_packages import installed_versions
from handler.neuron.lines.line_registry import installed_line
from handler.start_failure import in_one_line
from handler.startup.adapter_loading import load_adapters
from handler.startup.admission import places
from handler.startup.artifact_search import engine_by_artifacts, engine_over_tier
from handler.startup.checked_plan import checked_plan, use_environment, with_model
from handler.startup.custom_code_loading import load_custom_code, prepared_code
from handler.startup.given_artifacts import with_given_artifacts
from handler.startup.multi_model.memory_budget import need_of
from handler.startup.multi_model.model_registry import ModelRegistry
from handler.startup.progress_display import of_bytes, shown
from handler.startup.serving_state import ServingState
from handler.startup.start_errors import with_reason

logger = logging.getLogger(__name__)


def start(state: ServingState) -> None:
    """Brings the service from STARTING to READY, or to FAILED with the reason. Runs in a thread of its own."""
    config, lifecycle = state.config, state.lifecycle
    try:
        lifecycle.stage("check configuration")
        if without_model(config):
            lifecycle.stage("import vLLM")  # or whoever asks for the first model would wait for it
            use_environment(EnginePlan("cpu", {}))
            import_module("handler.engine.vllm_api.core.core")
            state.models = models_of(state, None)
            settle()
            lifecycle.ready()
            return
        plan = checked_plan(config) if config.engine != "none" else None
        if config.artifact_store or config.lora_modules or config.model.startswith("s3://"):
            require_scratch(config.scratch, config.source("scratch").name or SETTING)
        lifecycle.stage("fetch model")
        with shown(lifecycle, "fetch model") as progress:
            model = bring(config, of_bytes(progress))
        code = prepared_code(state, model)
        if plan is None:
            load_custom_code(state, code)
            lifecycle.ready()
            return
        if config.lora_modules or config.speculative_model or config.quantized_checkpoints_path:
            lifecycle.stage("fetch adapters and draft")
        with shown(lifecycle, "fetch adapters and draft") as progress:
            companions = bring_companions(config, of_bytes(progress), compiled_in=plan.line != "cpu")
        plan = with_given_artifacts(state, companions.rewritten(with_model(plan, model)))

        def engine_of(plan: EnginePlan) -> Engine:
            use_environment(plan)
            if state.peers is not None:
                state.peers.planned(plan, model)
            engine = state.engine = launch(plan, config, lifecycle.stage)
            lifecycle.stage("warm up")
            warm_up(engine)
            notes = None if state.peers is None else state.peers.adapter_notes
            load_adapters(engine, plan, config, companions.moved, lifecycle.stage, notes)
            state.admission.limit = places(config, engine.slots)
            if config.multi_model:
                state.models = models_of(state, plan)
            if config.enable_sessions and not engine.caches_prefixes():
                logger.warning("sessions are sticky, but without prefix caching each turn computes its whole prompt")
            return engine

        if not config.artifact_store or config.compiled_artifacts:
            with_reason(engine_of)(plan)
        else:
            way = engine_by_artifacts if model.size else engine_over_tier
            way(state, plan, Path(model.path), companions, engine_of)
        load_custom_code(state, code)
        if state.peers is not None and state.engine is not None:
            lifecycle.stage("start front ends")
            state.peers.gather(state.engine)
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


def models_of(state: ServingState, plan: EnginePlan | None) -> ModelRegistry:
    """:param plan: of the engine that runs already."""
    need = None if plan is None else need_of(Path(str(plan.engine_args["model"])), plan)
    return ModelRegistry(state.config, state.lifecycle, state.admission, lambda: state.engine, need)
