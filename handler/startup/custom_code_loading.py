"""Finds the custom code of a model, installs its requirements and loads it."""

from __future__ import annotations

import logging
from pathlib import Path

from handler.config.endpoint_config import EndpointConfig
from handler.custom_code import requirements
from handler.custom_code.code_contract import CustomCode
from handler.custom_code.code_source import NO_ENGINE, CodeKind, CodeSource, find_code
from handler.custom_code.engine_model import EngineModel
from handler.engine.engine import Engine
from handler.errors import EndpointError, SettingError
from handler.model.model_source import Model
from handler.neuron.checkpoint.checkpoint_files import LocalFiles, S3Files
from handler.schemas.tgi_lmi.request_options import RequestOptions
from handler.startup.serving_state import ServingState

logger = logging.getLogger(__name__)


def names_requirements(config: EndpointConfig) -> bool:
    """Whether the model may have code whose requirements are installed. It is asked before the model is fetched.

    True also if that cannot be read. The fetch of the model then reports why.
    """
    name = config.model
    if not config.custom_code or config.requirements == "none":
        return False
    try:
        files = S3Files(name) if name.startswith("s3://") else LocalFiles(Path(name), name)
        return any(files.read(file) is not None for file in (f"code/{requirements.NAME}", requirements.NAME))
    except EndpointError:
        return True


def prepared_code(state: ServingState, model: Model) -> CodeSource | None:
    """Finds the model's custom code and installs its requirements. The code of a hub id is not used.

    :raises SettingError: as `find_code` and `requirements.install`. Also if there is no engine and no code.
    """
    config = state.config
    local = model.size > 0 or config.engine == "none"
    source = find_code(config, model.path) if local else None
    if source is None:
        if config.engine == "none":
            raise SettingError(config.setting("engine"), *NO_ENGINE)
        return None
    for file in source.requirements:
        state.lifecycle.stage(f"install {file.name}")
        requirements.install(file, config)
    return source


def load_custom_code(state: ServingState, source: CodeSource | None) -> None:
    """:raises SettingError: the custom code cannot be loaded."""
    if source is None:
        return
    state.lifecycle.stage(f"load {source.file.name}")
    logger.info("the model has code of its own: %s", source.file)
    options = RequestOptions(inputs_schema=state.config.inputs_schema, output_formatter=state.config.output_formatter)
    state.custom_code = load_code(source, state.engine, options)


def load_code(source: CodeSource, engine: Engine | None, options: RequestOptions | None = None) -> CustomCode:
    """Imports the code, and calls `model_fn` or the first `handle`.

    :param engine: None if ENDPOINT_ENGINE is `none`.
    :param options: of the bodies that the code has the engine answer.
    :raises SettingError: the code cannot be loaded.
    """
    model = None if engine is None else EngineModel(engine, options)
    if source.kind is CodeKind.HANDLE:
        from handler.custom_code.lmi_handle import load_handle

        return load_handle(source, model)
    from handler.custom_code.hooks import load_hooks

    if source.kind is CodeKind.HOOKS:
        return load_hooks(source, model)
    from handler.custom_code.standards_app import load_standards

    return load_standards(source, model, lambda module: load_hooks(source.hooks or source, model, module=module))
