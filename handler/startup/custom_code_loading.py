"""Finds, installs and loads the code that comes with the model."""

from __future__ import annotations

import logging

from handler.custom_code import requirements
from handler.custom_code.code_source import CodeSource, find_code
from handler.errors import SettingError
from handler.model.model_source import Model
from handler.startup.serving_state import ServingState

logger = logging.getLogger(__name__)


def prepared_code(state: ServingState, model: Model) -> CodeSource | None:
    """The model's code, with what it requires installed. A hub id's code is somebody else's.

    :raises SettingError: see `find_code` and `requirements.install`; or there is none where it has to answer alone.
    """
    config = state.config
    local = model.size > 0 or config.engine == "none"
    source = find_code(config, model.path) if local else None
    if source is None:
        if config.engine == "none":
            fix = "Put code/inference.py into the model and leave ENDPOINT_CUSTOM_CODE on, or leave this out."
            raise SettingError("ENDPOINT_ENGINE", "without an engine the model's own code has to answer", fix)
        return None
    if source.requirements is not None:
        state.lifecycle.stage(f"install {requirements.NAME}")
        requirements.install(source.requirements, isolated=config.network_isolation)
    return source


def load_custom_code(state: ServingState, source: CodeSource | None) -> None:
    """:raises SettingError: the code cannot be loaded."""
    if source is None:
        return
    state.lifecycle.stage(f"load {source.file.name}")
    from handler.custom_code.code_loader import load_code

    logger.info("the model's own %s answers /invocations", source.file)
    state.custom_code = load_code(source, state.engine)
