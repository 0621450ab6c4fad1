"""The errors of loading and unloading LoRA adapters."""

from __future__ import annotations

from handler.errors import ClientError, ServerError


class InvalidAdapter(ClientError):
    """The adapter's files cannot be served with this model."""

    code = "invalid_adapter"

    def __init__(self, name: str, problem: str) -> None:
        super().__init__(f"The adapter '{name[:200]}' cannot be loaded: {problem}.", param="src")


class AdapterNotFound(ClientError):
    """No adapter with this name is loaded."""

    status = 404
    code = "adapter_not_found"

    def __init__(self, name: str) -> None:
        super().__init__(f"The adapter '{name[:200]}' is not loaded: load it with POST /adapters.", param="name")


class AdapterRequired(ClientError):
    """The engine has no slot for requests to the model itself."""

    code = "adapter_required"

    def __init__(self, names: tuple[str, ...]) -> None:
        known = ", ".join(names)[:200]
        problem = "This endpoint serves its adapters only, because max_loras has no room for the model itself"
        super().__init__(f"{problem}: set 'model' to one of {known}.", param="model")


class AdapterExists(ClientError):
    """Another adapter, or the model itself, has this name."""

    status = 409
    code = "adapter_exists"

    def __init__(self, name: str) -> None:
        super().__init__(f"'{name[:200]}' is already loaded from another source: unload it first, or update it.")


class AdaptersUnsupported(ClientError):
    """The engine was started without LoRA, or its Neuron line loads adapters only at the start."""

    status = 501
    code = "adapters_unsupported"

    def __init__(self, problem: str) -> None:
        super().__init__(f"Adapters cannot be loaded here: {problem}.")


class AdaptersFull(ServerError):
    """The limit of loaded adapters is reached. SageMaker then unloads the least recently used one and tries again."""

    status = 507
    code = "adapters_full"

    def __init__(self, limit: int) -> None:
        super().__init__(f"{limit} adapters are loaded, which is the limit: unload one.")
