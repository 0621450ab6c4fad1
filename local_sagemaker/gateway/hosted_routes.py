"""Selects the instance of an invocation: by weight, variant, inference component, or sticky session."""

from __future__ import annotations

from http.client import HTTPResponse

from werkzeug.datastructures import Headers

from local_sagemaker.gateway import gateway_errors as errors
from local_sagemaker.gateway import invocation_headers as headers
from local_sagemaker.gateway.container_selection import InvocationRoute
from local_sagemaker.gateway.gateway_errors import Endpoint
from local_sagemaker.hosting.component import Component
from local_sagemaker.hosting.endpoint import LiveEndpoint
from local_sagemaker.hosting.host import Host
from local_sagemaker.hosting.instances.instance import Instance
from local_sagemaker.hosting.instances.instance_pool import InstanceStartFailed, Pool
from local_sagemaker.hosting.instances.instance_routing import body_here
from local_sagemaker.hosting.instances.model_data import DataError
from local_sagemaker.hosting.instances.target_models import LoadFailed, TargetModels, TargetNotReady

NEW_SESSION = "NEW_SESSION"
COMPONENT_WITHOUT_COPIES = (
    "Inference Component has no capacity to process this request. ApplicationAutoScaling may be in-progress "
    "(if configured) or try to increase the capacity by invoking UpdateInferenceComponentRuntimeConfig API."
)
COMPONENT_NEEDED = (
    "Inference Component Name header is required for endpoints to which you plan to deploy inference "
    "components. Please include Inference Component Name header or consider using SageMaker models."
)


class HostedRoute(InvocationRoute):
    def __init__(self, live: LiveEndpoint, endpoint: Endpoint, pool: Pool, instance: Instance, pinned: bool) -> None:
        super().__init__(endpoint, instance.address)
        self._live = live
        self._pool = pool
        self._instance = instance
        self._pinned = pinned
        self._refused: frozenset[str] = frozenset()

    def through(self, adapter: Component) -> None:
        """Prepares an instance for an adapter.

        :raises ServiceUnavailable: the container rejects the adapter.
        """
        try:
            adapter.prepare(self._instance)
        except InstanceStartFailed as error:
            raise errors.ServiceUnavailable(self.endpoint, str(error)) from error
        self.more_headers = ((headers.ADAPTER, adapter.name), (headers.ADAPTER_ALIAS, adapter.name))

    def to_target(self, targets: TargetModels, target: str) -> None:
        """Prepares an instance for a target model.

        :raises GatewayError: the model does not exist, the container rejects it, or it is still being loaded.
        """
        try:
            name = targets.prepare(self._instance, target)
        except DataError as error:
            raise errors.ValidationError(f"Failed to download the target model: {error}") from error
        except TargetNotReady as error:
            wait = f"The target model {target} is still being downloaded or loaded. Wait and try again."
            raise errors.ModelNotReady(wait) from error
        except LoadFailed as error:
            raise errors.ModelError(self.endpoint, error.status, error.said) from error
        self.path = f"/models/{name}/invoke"
        self._pinned = True

    def try_another(self) -> bool:
        self._refused |= {self._instance.id}
        if self._pinned or (other := self._pool.pick(self._refused)) is None:
            return False
        self._pool.release(self._instance)
        self._instance, self.container = other, other.address
        return True

    def answered(self, head: HTTPResponse) -> None:
        if opened := head.headers.get(headers.NEW_SESSION):
            with self._live.changed:
                self._live.sessions.opened(opened, self._instance.id)
        if closed := head.headers.get(headers.CLOSED_SESSION):
            with self._live.changed:
                self._live.sessions.closed(closed)

    def release(self) -> None:
        self._pool.release(self._instance)


class HostedRoutes:
    def __init__(self, host: Host) -> None:
        self._host = host

    def route(self, name: str, request_headers: Headers, asynchronous: bool = False) -> InvocationRoute:
        """Selects an instance.

        :raises GatewayError: see `Routes.route`.
        """
        settings = self._host.settings
        live = self._host.find(name)
        if live is None or live.current is None:
            raise errors.ValidationError(errors.ENDPOINT_NOT_FOUND.format(name, settings.account))
        for header, feature in headers.UNSUPPORTED.items():
            if header in request_headers:
                raise errors.ValidationError(f"{header} can't be given: endpoint {name} does not have {feature}.")
        identity = Endpoint(name, "", settings.region, settings.account)
        with live.changed:
            if live.current is None:
                raise errors.ValidationError(errors.ENDPOINT_NOT_FOUND.format(name, settings.account))
            if "AsyncInferenceConfig" in live.current.plan and not asynchronous:
                raise errors.ValidationError(f"Endpoint {name} is an asynchronous endpoint; use InvokeEndpointAsync.")
            variant, pool, way = self._pool(live, identity, request_headers)
            endpoint = Endpoint(name, variant, settings.region, settings.account)
            pool, instance, pinned = self._instance(live, endpoint, pool, request_headers)
        route = HostedRoute(live, endpoint, pool, instance, pinned)
        try:
            if isinstance(way, Component):
                route.through(way)
            elif way is not None:
                route.to_target(way, request_headers[headers.TARGET_MODEL])
        except BaseException:
            route.release()
            raise
        return route

    def _pool(
        self, live: LiveEndpoint, identity: Endpoint, request_headers: Headers
    ) -> tuple[str, Pool, Component | TargetModels | None]:
        """Returns the variant, its instances, and what must be loaded into an instance first."""
        target = request_headers.get(headers.TARGET_VARIANT)
        if (name := request_headers.get(headers.COMPONENT)) is not None:
            component = live.components.get(name)
            if component is None or target not in (None, component.variant):
                raise errors.ValidationError(f"Inference Component {name} of endpoint {identity.name} not found.")
            if component.copies().desired == 0:
                raise errors.ValidationError(COMPONENT_WITHOUT_COPIES)
            return component.variant, component.copies(), component if component.base is not None else None
        variant = live.choose(target)
        if variant is None:
            raise errors.ValidationError(errors.VARIANT_NOT_FOUND.format(target or "", identity))
        if variant.pool is None:
            raise errors.ValidationError(COMPONENT_NEEDED)
        if variant.targets is None and headers.TARGET_MODEL in request_headers:
            problem = "is not a multi-model endpoint; TargetModel can't be given"
            raise errors.ValidationError(f"Endpoint {live.name} {problem}.")
        if variant.targets is not None and headers.TARGET_MODEL not in request_headers:
            raise errors.ValidationError(f"Endpoint {live.name} is a multi-model endpoint; TargetModel must be given.")
        return variant.name, variant.pool, variant.targets

    def _instance(
        self, live: LiveEndpoint, endpoint: Endpoint, pool: Pool, request_headers: Headers
    ) -> tuple[Pool, Instance, bool]:
        """Reserves an instance. Also returns whether the request is bound to it."""
        session = request_headers.get(headers.SESSION_ID)
        if session is None or session == NEW_SESSION:
            instance = pool.pick(body=body_here(), identifier=request_headers.get(headers.PREFIX_AWARE_ID))
            if instance is None:
                raise errors.ServiceUnavailable(endpoint, "no instance is healthy")
            return pool, instance, False
        lives_on = live.sessions.instance(session)
        chosen = headers.COMPONENT in request_headers or headers.TARGET_VARIANT in request_headers
        for each in [pool] if chosen else live.pools():
            for instance in each.healthy():
                if instance.id == lives_on:
                    return each, each.take(instance), True
        raise errors.ValidationError(
            f"Session {session} of endpoint {endpoint.name} does not exist, is closed or has expired."
        )
