"""Loads the custom code of a model, of either kind."""

from __future__ import annotations

from handler.custom_code.code_contract import CustomCode
from handler.custom_code.code_source import CodeSource
from handler.custom_code.engine_model import EngineModel
from handler.engine.engine import Engine


def load_code(source: CodeSource, engine: Engine | None) -> CustomCode:
    """Imports the code, and calls `model_fn` or the first `handle`.

    :param engine: None if ENDPOINT_ENGINE is `none`.
    :raises SettingError: the code cannot be loaded.
    """
    model = None if engine is None else EngineModel(engine)
    if source.lmi:
        from handler.custom_code.lmi_handle import load_handle

        return load_handle(source, model)
    from handler.custom_code.hooks import load_hooks

    return load_hooks(source, model)
