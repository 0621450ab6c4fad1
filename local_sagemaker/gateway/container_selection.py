"""Selects the container of an invocation: here the only one. `HostedRoutes` selects among instances."""

from __future__ import annotations

from http.client import HTTPResponse
from typing import Protocol

from werkzeug.datastructures import Headers

from local_sagemaker.gateway import invocation_headers as headers
from local_sagemaker.gateway.gateway_errors import ENDPOINT_NOT_FOUND, VARIANT_NOT_FOUND, Endpoint, ValidationError
from local_sagemaker.hosting.instances.host_settings import ContainerAddress


class InvocationRoute:
    """The container of one invocation. It is reserved once and released once.

    :ivar more_headers: the headers that SageMaker adds to the client's.
    """

    def __init__(self, endpoint: Endpoint, container: ContainerAddress) -> None:
        self.endpoint = endpoint
        self.container = container
        self.path = "/invocations"
        self.more_headers: tuple[tuple[str, str], ...] = ()

    def try_another(self) -> bool:
        """Switches to another container if this one accepts no connection. Returns False if there is none."""
        return False

    def answered(self, head: HTTPResponse) -> None:
        """Called when the container has begun to reply."""

    def release(self) -> None:
        """Called when the invocation has ended."""


class Routes(Protocol):
    def route(self, name: str, request_headers: Headers) -> InvocationRoute:
        """Selects a container.

        :raises GatewayError: the endpoint, variant, component or session does not exist or has no capacity.
        """


class FixedRoutes:
    """The routes to the container that the gateway was started with."""

    def __init__(self, endpoint: Endpoint, container: ContainerAddress) -> None:
        self._endpoint = endpoint
        self._container = container

    def route(self, name: str, request_headers: Headers) -> InvocationRoute:
        if name != self._endpoint.name:
            raise ValidationError(ENDPOINT_NOT_FOUND.format(name, self._endpoint.account))
        variant = request_headers.get(headers.TARGET_VARIANT, self._endpoint.variant)
        if variant != self._endpoint.variant:
            raise ValidationError(VARIANT_NOT_FOUND.format(variant, self._endpoint))
        return InvocationRoute(self._endpoint, self._container)
