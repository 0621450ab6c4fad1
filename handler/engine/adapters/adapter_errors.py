"""What can be wrong with an adapter."""

from __future__ import annotations

from handler.errors import ClientError, ServerError


class InvalidAdapter(ClientError):
    """Its files cannot be served over this model."""

    code = "invalid_adapter"

    def __init__(self, name: str, problem: str) -> None:
        super().__init__(f"The adapter '{name[:200]}' cannot be loaded: {problem}.", param="src")


class AdapterNotFound(ClientError):
    """No adapter of that name is loaded."""

    status = 404
    kind = "not_found_error"
    code = "adapter_not_found"

    def __init__(self, name: str) -> None:
        super().__init__(f"The adapter '{name[:200]}' is not loaded: load it with POST /adapters.", param="name")


class AdapterExists(ClientError):
    """The name is taken, by another adapter or by the model itself."""

    status = 409
    code = "adapter_exists"

    def __init__(self, name: str) -> None:
        super().__init__(f"'{name[:200]}' is loaded already from another place: unload it first, or update it.")


class AdaptersUnsupported(ClientError):
    """The engine was started without adapters, or its line takes them at the start only."""

    status = 501
    code = "adapters_unsupported"

    def __init__(self, problem: str) -> None:
        super().__init__(f"Adapters cannot be loaded here: {problem}.")


class AdaptersFull(ServerError):
    """As many as may be loaded are. SageMaker unloads the one that was not used for longest, and asks again."""

    status = 507
    code = "adapters_full"

    def __init__(self, limit: int) -> None:
        super().__init__(f"{limit} adapters are loaded already, as many as may be: unload one.")
