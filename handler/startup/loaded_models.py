"""The models and adapters of a multi-model endpoint, by name."""

from __future__ import annotations

from handler.engine.adapters.adapters import Adapter, Adapters
from handler.startup.multi_model.loaded_model import LoadedModel
from handler.startup.multi_model.model_errors import ModelNotLoaded
from handler.startup.serving_state import ServingState


def adapter_table(state: ServingState) -> Adapters | None:
    """The adapters of the model of the start; None if its engine serves none."""
    return None if state.engine is None else state.engine.adapters


def find_model(state: ServingState, name: str) -> LoadedModel | Adapter:
    """The model or adapter of this name.

    :raises ModelNotLoaded: there is neither.
    """
    state.require_engine()
    adapters = adapter_table(state)
    if adapters is None or name not in adapters.names():
        if state.models is None:
            raise ModelNotLoaded(name)
        return state.models.get(name)
    return adapters.get(name)
