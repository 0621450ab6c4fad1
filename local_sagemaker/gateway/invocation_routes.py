"""Where an invocation goes: to the one container that a gateway was given, or to an instance of an endpoint."""

from __future__ import annotations

from typing import Protocol

from werkzeug.datastructures import Headers

from local_sagemaker.gateway import invocation_headers as headers
from local_sagemaker.gateway.gateway_errors import EndpointNotFound, VariantNotFound
from local_sagemaker.gateway.gateway_settings import ContainerAddress, Endpoint
from local_sagemaker.gateway.http_reply import ReplyHead


class InvocationRoute(Protocol):
    """One invocation's way, taken once and released once.

    :ivar more_headers: what SageMaker adds to those of the client.
    :ivar delay: seconds that the network takes beyond its own.
    """

    endpoint: Endpoint
    path: str
    more_headers: tuple[tuple[str, str], ...]
    delay: float

    @property
    def container(self) -> ContainerAddress: ...

    def elsewhere(self) -> bool:
        """The container takes no connection: whether ``container`` is now another one."""

    def answered(self, head: ReplyHead) -> None:
        """The container has begun to answer."""

    def release(self) -> None: ...


class Routes(Protocol):
    def route(self, name: str, asked: Headers) -> InvocationRoute:
        """:raises GatewayError: no endpoint, variant, component or session of that name, or none is able."""


class FixedRoute:
    """To the container that the gateway was started with."""

    path = "/invocations"
    more_headers: tuple[tuple[str, str], ...] = ()
    delay = 0.0

    def __init__(self, endpoint: Endpoint, container: ContainerAddress) -> None:
        self.endpoint = endpoint
        self.container = container

    def elsewhere(self) -> bool:
        return False

    def answered(self, head: ReplyHead) -> None:
        pass

    def release(self) -> None:
        pass


class FixedRoutes:
    def __init__(self, endpoint: Endpoint, container: ContainerAddress) -> None:
        self._endpoint = endpoint
        self._container = container

    def route(self, name: str, asked: Headers) -> InvocationRoute:
        if name != self._endpoint.name:
            raise EndpointNotFound(name, self._endpoint.account)
        variant = asked.get(headers.TARGET_VARIANT, self._endpoint.variant)
        if variant != self._endpoint.variant:
            raise VariantNotFound(variant, self._endpoint)
        return FixedRoute(self._endpoint, self._container)
