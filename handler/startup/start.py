"""The start of an endpoint, after the port is bound: fetch the model, start the engine, warm it up, become ready."""

from __future__ import annotations

import gc
import logging
from collections.abc import Callable
from functools import partial
from pathlib import Path

from handler.artifacts.restore.restore_target import SETTING, require_scratch
from handler.config.dialects.container_variables import BASE
from handler.config.endpoint_config import EndpointConfig
from handler.engine.engine import Engine
from handler.engine.launch import import_vllm, launch, stopped_on_failure
from handler.engine.waiting_process import WaitingProcess
from handler.engine.warmup import warm_up
from handler.errors import Draining, EndpointError, SettingError
from handler.model.companions import Companions, fetch_companions
from handler.model.model_source import Model, fetch_model
from handler.neuron.engine_plan import EnginePlan, compiles_only
from handler.neuron.hardware.installed_packages import installed_versions
from handler.neuron.lines.fork import SUFFIX
from handler.neuron.lines.line_registry import installed_line
from handler.neuron.lines.optimum_neuron import NAME as OPTIMUM
from handler.processes import current_environment
from handler.start_failure import in_one_line
from handler.startup.adapter_loading import load_adapters
from handler.startup.admission import max_in_flight
from handler.startup.artifact_backends import ArtifactBackend, compiles_in_scratch, with_scratch_artifacts
from handler.startup.artifact_search import engine_by_artifacts, engine_with_neff_cache
from handler.startup.checked_plan import checked_plan, require_line, use_environment, with_model
from handler.startup.custom_code_loading import load_custom_code, names_requirements, prepared_code
from handler.startup.external_artifacts_loading import keep_compiled, with_external_artifacts
from handler.startup.lifecycle import COMPILED, ServingStatus
from handler.startup.multi_model.memory_budget import need_of
from handler.startup.multi_model.model_registry import ModelRegistry
from handler.startup.multi_model.model_start import start as start_model
from handler.startup.progress_display import of_bytes, shown
from handler.startup.serving_state import ServingState
from handler.startup.start_diagnosis import explained_start_failure
from handler.startup.start_steps import StartSteps, Step

# The thresholds of the garbage collector (gc.set_threshold): those of young objects are Python's own.
YOUNG, FULL = (700, 10), 100
logger = logging.getLogger(__name__)
MODEL, CODE, COMPANIONS, IMPORT = "fetch model", "prepare custom code", "fetch adapters and draft", "import vLLM"
CORE = "fork the core's process"


def start(state: ServingState) -> None:
    """Takes the endpoint from STARTING to READY, or to FAILED with the reason. Runs in a thread of its own."""
    lifecycle = state.lifecycle
    try:
        lifecycle.stage("check configuration")
        if starts_without_model(state.config):
            _start_without_model(state)
        else:
            _start_with_model(state)
        _freeze_garbage_collector()
        if compiles_only(state.config.neuron_env):
            lifecycle.stage(COMPILED)
        else:
            lifecycle.ready()
    except EndpointError as error:
        lifecycle.fail(error.message)
    except BaseException as error:
        # The engine's core has printed its own error. A traceback is for readers of the log, not for clients.
        if lifecycle.status.state is not ServingStatus.DRAINING:
            logger.exception("the start failed")
        lifecycle.fail(f"{lifecycle.status.stage}: {type(error).__name__}: {in_one_line(error)}")


def _start_with_model(state: ServingState) -> None:
    """The steps of a start with a model. Without an engine (ENDPOINT_ENGINE=none), its own code serves alone."""
    config, lifecycle = state.config, state.lifecycle
    plan = None if config.engine == "none" else checked_plan(config)
    if plan is not None:
        require_line(plan, config.source("line").name or "ENDPOINT_LINE")
    _check_scratch(config, plan)
    steps, cores = StartSteps(lifecycle), list[WaitingProcess]()
    try:
        steps.begin(_side_by_side(state, plan, steps, cores))
        lifecycle.stage(MODEL)
        model = steps.result(MODEL)
        code = steps.result(CODE)
        if plan is not None:
            if config.lora_modules or config.speculative_model or config.quantized_checkpoints_path:
                lifecycle.stage(COMPANIONS)
            companions = steps.result(COMPANIONS)
            plan = companions.rewritten(with_model(plan, model))
            paths = ArtifactBackend(config, Path(model.path), companions).configured_paths
            plan = with_external_artifacts(state, plan, paths)
            _start_engine(state, plan, model, companions, steps)
            keep_compiled(plan)
            if compiles_only(plan.env):
                return
    finally:
        steps.end()
        for core in cores:
            core.end()
    load_custom_code(state, code)


def _side_by_side(
    state: ServingState, plan: EnginePlan | None, steps: StartSteps, cores: list[WaitingProcess]
) -> list[Step]:
    """The steps that run side by side. What comes after them runs in the start's own thread.

    :param cores: gets the process that waits to become the engine core.
    """
    config = state.config

    def transfer(name: str, fetch: Callable[[Callable[[int, int], None]], object]) -> object:
        with shown(state.lifecycle, name) as progress:
            report = of_bytes(progress)

            def update(done: int, total: int) -> None:
                steps.check()
                report(done, total)

            return fetch(update)

    def fork_core(imported: object) -> WaitingProcess | None:
        if not spawned:
            return None
        cores.append(WaitingProcess(environment))
        return cores[-1]

    fetches = [
        Step(MODEL, partial(transfer, MODEL, partial(fetch_model, config))),
        Step(CODE, partial(prepared_code, state), (MODEL,)),
    ]
    if plan is None:
        return fetches
    environment = current_environment()
    use_environment(plan)
    # Packages that the model's own code requires are installed before anything of vLLM is imported.
    before = (CODE,) if names_requirements(config) else ()
    companions = partial(fetch_companions, config, compiled_in=plan.line != "cpu")
    # Elsewhere vLLM forks the core itself. On a CPU it would spawn it (platforms/cpu.py).
    spawned = plan.line == "cpu"
    return [
        *fetches,
        Step(COMPANIONS, partial(transfer, COMPANIONS, companions)),
        Step(IMPORT, lambda *_: import_vllm(core=spawned), before),
        Step(CORE, fork_core, (IMPORT,)),
    ]


def _start_without_model(state: ServingState) -> None:
    """The steps of a multi-model endpoint without a model. vLLM is imported now, so the first model loads faster."""
    state.lifecycle.stage("import vLLM")
    use_environment(EnginePlan("cpu", {}))
    import_vllm()
    state.models = _model_registry(state, None)


def _check_scratch(config: EndpointConfig, plan: EnginePlan | None) -> None:
    """:raises SettingError: the scratch directory is needed and cannot be used."""
    compiles = plan is not None and compiles_in_scratch(config, plan)
    if compiles or config.artifact_store or config.lora_modules or config.model.startswith("s3://"):
        require_scratch(config.scratch, config.source("scratch").name or SETTING)


def _start_engine(
    state: ServingState, plan: EnginePlan, model: Model, companions: Companions, steps: StartSteps
) -> None:
    """Starts the engine: with restored or newly compiled artifacts if there is a store, else directly."""
    config = state.config
    start_engine = partial(_launch_engine, state, companions, steps)
    if not config.artifact_store or config.compiled_artifacts or plan.line == OPTIMUM:
        with explained_start_failure(state.lifecycle):
            start_engine(with_scratch_artifacts(config, plan, model, companions))
    elif model.size and not plan.line.endswith(SUFFIX):
        engine_by_artifacts(state, plan, Path(model.path), companions, start_engine)
    else:  # the model is a hub id, whose artifacts have no key, or the line saves single graphs only
        engine_with_neff_cache(state, plan, Path(model.path), companions, start_engine)


def _launch_engine(state: ServingState, companions: Companions, steps: StartSteps, plan: EnginePlan) -> Engine:
    """Launches an engine with a plan, warms it up and gives it its adapters. A failure leaves no engine behind.

    :raises Draining: after SIGTERM. The end of the core is then no failure of a compile.
    """
    try:
        return _warm_engine(state, companions, steps, plan)
    except Exception as error:
        state.engine = None
        if state.lifecycle.status.state is ServingStatus.DRAINING:
            raise Draining from error
        raise


def _warm_engine(state: ServingState, companions: Companions, steps: StartSteps, plan: EnginePlan) -> Engine:
    config, lifecycle = state.config, state.lifecycle
    use_environment(plan)
    engine = state.engine = launch(plan, config, state.loop, lifecycle.stage, imports=partial(steps.result, CORE))
    if compiles_only(plan.env):
        return engine
    load = partial(load_adapters, engine, plan, config, companions.moved, lifecycle.stage)
    with stopped_on_failure(engine):
        if plan.line != "cpu":
            load()  # The NxDI plugin's engine ends at a request without an adapter, so the warm-up needs them.
        lifecycle.stage("warm up")
        warm_up(engine, plan)
        if plan.line == "cpu":
            load()
    state.admission.limit = max_in_flight(config, engine.slots)
    if config.multi_model:
        state.models = _model_registry(state, plan)
    if config.enable_sessions and not engine.facts.caches_prefixes:
        logger.warning("prefix caching is off: each turn of a session computes its whole prompt again")
    return engine


def _freeze_garbage_collector() -> None:
    """Excludes all objects made so far from garbage collection, because they live as long as the process.

    Otherwise a collection walks all of them, and every token and every /ping waits a quarter of a second for it. A full
    collection also walks what the running requests have, which may be a million log probabilities. It is rare: most
    garbage is young, and a request leaves none that refers to itself (tests/container/http/test_garbage.py).
    """
    gc.collect()
    gc.freeze()
    gc.set_threshold(*YOUNG, FULL)


ONE_MODEL = "Set ENDPOINT_MODEL. ENDPOINT_ENABLE_LORA=true adds adapters, on a line that has them."


def starts_without_model(config: EndpointConfig) -> bool:
    """Whether this is a multi-model endpoint that SageMaker starts without a model. POST /models loads its models.

    :raises SettingError: this endpoint cannot serve several models.
    """
    configured = config.source("model").name not in {"", BASE}
    directory = Path(config.model)
    has_files = directory.is_dir() and any(directory.iterdir())
    if not config.multi_model or config.engine == "none" or configured or has_files:
        return False
    line = config.line or installed_line(installed_versions())
    if line != "cpu":
        problem = f"there is no model in {directory}, and the line {line} serves one model"
        raise SettingError("SAGEMAKER_MULTI_MODEL", problem, ONE_MODEL)
    return True


def _model_registry(state: ServingState, plan: EnginePlan | None) -> ModelRegistry:
    """:param plan: the plan of the engine that runs already, if there is one."""
    need = None if plan is None else need_of(Path(str(plan.engine_args["model"])), plan)
    start = partial(start_model, state.loop)
    return ModelRegistry(state.config, state.lifecycle, state.admission, lambda: state.engine, need, start=start)
