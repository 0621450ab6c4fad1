"""The errors of loading, unloading and using the models of a multi-model endpoint."""

from __future__ import annotations

from handler.errors import ClientError, ServerError


class InvalidModel(ClientError):
    """The URL does not give a model that can be served in a multi-model endpoint."""

    code = "invalid_model"

    def __init__(self, name: str, problem: str, fix: str) -> None:
        super().__init__(f"The model '{name[:200]}' cannot be loaded: {problem}. {fix}", param="url")


class ModelNotLoaded(ClientError):
    """No model with this name is loaded."""

    status = 404
    code = "model_not_loaded"

    def __init__(self, name: str) -> None:
        super().__init__(f"The model '{name[:200]}' is not loaded: load it with POST /models.", param="model")


class ModelUnnamed(ClientError):
    """The endpoint was started without a model, and the request names none."""

    status = 404
    code = "model_unnamed"

    def __init__(self) -> None:
        super().__init__(
            "The request must name a model: use the path /models/{name}/invoke, or the body's 'model'. "
            "POST /models loads models.",
            param="model",
        )


class ModelExists(ClientError):
    """Another model or an adapter has this name, perhaps one that is being loaded."""

    status = 409
    code = "model_exists"

    def __init__(self, name: str) -> None:
        super().__init__(f"'{name[:200]}' is already loaded or being loaded: unload it first.")


class ModelsUnsupported(ClientError):
    """This endpoint cannot serve several models. Adapters are no models in this sense."""

    status = 501
    code = "models_unsupported"

    def __init__(self, problem: str) -> None:
        super().__init__(f"This endpoint cannot serve several models: {problem}.")


class ModelsFull(ServerError):
    """There is no memory for another model. SageMaker then unloads the least recently used one and tries again."""

    status = 507
    code = "models_full"

    def __init__(self, problem: str, least_used: str | None = None) -> None:
        fix = "Unload another, or use an instance with more memory."
        if least_used is not None:
            fix = f"Unload one: '{least_used[:200]}' is the least recently used."
        super().__init__(f"There is no room for another model: {problem}. {fix}")


class ModelLoadFailed(ServerError):
    """The model's engine could not be started. It has been removed completely."""

    code = "model_load_failed"

    def __init__(self, name: str, reason: str) -> None:
        super().__init__(f"The model '{name[:200]}' could not be loaded: {reason}")


class ModelFailed(ServerError):
    """The model's engine ended while it served. The other models go on."""

    code = "model_failed"
    ends_lines = True

    def __init__(self, name: str, reason: str) -> None:
        super().__init__(f"The model '{name[:200]}' has failed ({reason}): load it again with POST /models.")


class ModelUnloaded(ServerError):
    """The model was unloaded, and this request did not finish in the time that running requests get."""

    status = 503
    code = "model_unloaded"
    ends_lines = True

    def __init__(self, name: str, seconds: float) -> None:
        super().__init__(
            f"The model '{name[:200]}' was unloaded, and this request did not finish within {seconds:g} s."
        )
