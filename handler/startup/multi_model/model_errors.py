"""What can be wrong with a model that is loaded beside others."""

from __future__ import annotations

from handler.errors import ClientError, ServerError


class InvalidModel(ClientError):
    """What the URL names is no model that can be served beside others."""

    code = "invalid_model"

    def __init__(self, name: str, problem: str, fix: str) -> None:
        super().__init__(f"The model '{name[:200]}' cannot be loaded: {problem}. {fix}", param="url")


class ModelNotLoaded(ClientError):
    """No model of that name is loaded."""

    status = 404
    kind = "not_found_error"
    code = "model_not_loaded"

    def __init__(self, name: str) -> None:
        super().__init__(f"The model '{name[:200]}' is not loaded: load it with POST /models.", param="model")


class ModelUnnamed(ClientError):
    """The endpoint was started without a model, and the request names none."""

    status = 404
    kind = "not_found_error"
    code = "model_unnamed"

    def __init__(self) -> None:
        super().__init__(
            "This endpoint has no model of its own: name one that POST /models has loaded, in the path "
            "/models/{name}/invoke or as the body's 'model'.",
            param="model",
        )


class ModelExists(ClientError):
    """The name is taken: by another model, one that is being loaded, the model of the start or an adapter."""

    status = 409
    code = "model_exists"

    def __init__(self, name: str) -> None:
        super().__init__(f"'{name[:200]}' is loaded or being loaded already: unload it first.")


class ModelsUnsupported(ClientError):
    """This endpoint cannot hold several whole models."""

    status = 501
    code = "models_unsupported"

    def __init__(self, problem: str) -> None:
        super().__init__(f"Several whole models cannot be served here: {problem}.")


class ModelsFull(ServerError):
    """There is no room. SageMaker unloads the one that was not used for longest, and asks again."""

    status = 507
    code = "models_full"

    def __init__(self, problem: str, least_used: str | None = None) -> None:
        fix = "Unload another, or use an instance with more memory."
        if least_used is not None:
            fix = f"Unload one: '{least_used[:200]}' was not used for longest."
        super().__init__(f"There is no room for another model: {problem}. {fix}")


class ModelLoadFailed(ServerError):
    """Its engine could not be started. Nothing of it is left."""

    code = "model_load_failed"

    def __init__(self, name: str, reason: str) -> None:
        super().__init__(f"The model '{name[:200]}' could not be loaded: {reason}")


class ModelFailed(ServerError):
    """Its engine has ended while it served. The other models go on."""

    code = "model_failed"

    def __init__(self, name: str, reason: str) -> None:
        super().__init__(f"The model '{name[:200]}' has failed ({reason}): load it again with POST /models.")


class ModelUnloaded(ServerError):
    """It was unloaded, and this request did not end in the time that those under way are given."""

    status = 503
    kind = "service_unavailable_error"
    code = "model_unloaded"

    def __init__(self, name: str, seconds: float) -> None:
        super().__init__(f"The model '{name[:200]}' was unloaded {seconds:g} s ago, and this request ended with it.")
