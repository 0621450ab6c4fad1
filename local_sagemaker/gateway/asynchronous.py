"""InvokeEndpointAsync: accepts requests at once and runs them from a queue. Input, output and failures are in S3."""

from __future__ import annotations

import json
import logging
import threading
import time
import uuid
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any

from flask import request
from werkzeug.datastructures import Headers
from werkzeug.wrappers import Response

from local_sagemaker.gateway import gateway_errors as errors
from local_sagemaker.gateway import invocation_headers as headers
from local_sagemaker.gateway.container_connection import RuntimeLimits, UpstreamError
from local_sagemaker.gateway.hosted_routes import HostedRoutes
from local_sagemaker.gateway.runtime_gateway import reach, read_body
from local_sagemaker.hosting.host import Host
from local_sagemaker.hosting.instances.s3_access import ObjectError, S3Location

log = logging.getLogger(__name__)

INPUT_BYTES = 1024**3
INLINE_BYTES = 128_000
TTL_SECONDS = 21_600
INVOCATION_SECONDS = 900
MOST_REPLY_HEADERS = 4096
# Seen in public: aws/deep-learning-containers, issue 4668.
OVERSIZE_REPLY_HEADERS = (
    f"Response received from the primary container has headers with length greater than {MOST_REPLY_HEADERS} bytes. "
    "Reduce the length of your container's response headers and update your endpoint."
)
# Seen in public: deepjavalibrary/djl-serving, issue 2567.
NO_LENGTH = "The response from container primary did not specify the required Content-Length header"
# SageMaker chooses a number if the configuration has none. How it does is not public.
CONCURRENT_PER_INSTANCE = 4
TRY_AGAIN_AFTER = 0.25


@dataclass(frozen=True, slots=True)
class QueuedRequest:
    """One accepted request.

    :ivar input: the body, or where it is in S3.
    :ivar output, failure: the URIs of which one will have an object; empty if the configuration has no such path.
    :ivar expires: seconds since the epoch.
    """

    endpoint: str
    input: bytes | str
    headers: tuple[tuple[str, str], ...]
    output: str
    failure: str
    expires: float
    timeout: float


class Asynchronous:
    def __init__(self, host: Host, routes: HostedRoutes, limits: RuntimeLimits) -> None:
        self._host = host
        self._routes = routes
        self._limits = limits
        self._queues: dict[tuple[str, int], ThreadPoolExecutor] = {}
        self._lock = threading.Lock()

    def invoke(self, name: str) -> Response:
        """Accepts a request.

        :raises GatewayError: the endpoint does not exist or is not asynchronous, or a header is invalid.
        """
        body = read_body(self._limits.body_bytes)
        params = headers.params_of(headers.ASYNC, name, request.headers)
        plan = self._plan(name)
        passed = tuple(headers.for_container(headers.ASYNC, name, request.headers))
        if ("InputLocation" in params) == bool(body):
            raise errors.ValidationError("Exactly one of InputLocation and Body must be given.")
        if len(body) > INLINE_BYTES:
            raise errors.ValidationError(errors.OVERSIZE_BODY.format("of InvokeEndpointAsync", INLINE_BYTES))
        name_of_output = str(uuid.uuid4())
        output = plan["AsyncInferenceConfig"]["OutputConfig"]
        folder = params.get("S3OutputPathExtension", "")
        queued = QueuedRequest(
            endpoint=name,
            input=params.get("InputLocation", body),
            headers=passed,
            output=join(output.get("S3OutputPath"), folder, params.get("Filename", f"{name_of_output}.out")),
            failure=join(output.get("S3FailurePath"), folder, f"{name_of_output}-error.out"),
            expires=time.time() + self._host.settings.timing.scaled(params.get("RequestTTLSeconds", TTL_SECONDS)),
            timeout=params.get("InvocationTimeoutSeconds", INVOCATION_SECONDS),
        )
        self._queue(name, plan).submit(self._carry_out, queued)
        answer = {"InferenceId": params.get("InferenceId", name_of_output)}
        reply = Response(json.dumps(answer), 202, content_type="application/json")
        for header, location in (("OutputLocation", queued.output), ("FailureLocation", queued.failure)):
            if location:
                reply.headers[headers.AMZN + header] = location
        return reply

    def _plan(self, name: str) -> Mapping[str, Any]:
        live = self._host.find(name)
        current = live.current if live else None
        if live is None or current is None:
            raise errors.ValidationError(errors.ENDPOINT_NOT_FOUND.format(name, self._host.settings.account))
        if "AsyncInferenceConfig" not in current.plan:
            raise errors.ValidationError(
                f"Endpoint {name} is not an asynchronous endpoint: its configuration has none."
            )
        return current.plan

    def _queue(self, name: str, plan: Mapping[str, Any]) -> ThreadPoolExecutor:
        """The endpoint's queue. An update that changes the concurrency begins another one; the old one runs empty."""
        config = plan["AsyncInferenceConfig"].get("ClientConfig", {})
        per_instance = int(config.get("MaxConcurrentInvocationsPerInstance") or CONCURRENT_PER_INSTANCE)
        count = per_instance * sum(variant["Count"] for variant in plan["Variants"])
        with self._lock:
            if (name, count) not in self._queues:
                self._queues[name, count] = ThreadPoolExecutor(count, thread_name_prefix=f"async-{name}")
            return self._queues[name, count]

    def _carry_out(self, queued: QueuedRequest) -> None:
        try:
            body, content_type = self._answer(queued)
            if queued.output:
                self._host.objects.write(S3Location.parse(queued.output), body, content_type)
        except (errors.GatewayError, ObjectError, UpstreamError) as error:
            self._fail(queued, str(error))
        except Exception:
            log.exception("an asynchronous request failed; its output would be %s", queued.output)
            self._fail(queued, "The service failed. Its log has the reason.")

    def _answer(self, queued: QueuedRequest) -> tuple[bytes, str | None]:
        body = queued.input
        if isinstance(body, str):
            body = self._host.objects.read(S3Location.parse(body), INPUT_BYTES)
        while True:
            if time.time() > queued.expires:
                raise errors.ValidationError("The request expired: it was not processed within RequestTTLSeconds.")
            try:
                return self._invoke(queued, body)
            except errors.ServiceUnavailable:
                time.sleep(TRY_AGAIN_AFTER)  # An instance may be starting. A queued request can wait for it.

    def _invoke(self, queued: QueuedRequest, body: bytes) -> tuple[bytes, str | None]:
        route = self._routes.route(queued.endpoint, Headers(queued.headers), asynchronous=True)
        with reach(route, self._limits, queued.timeout) as connection:
            head = connection.send("POST", route.path, queued.headers, body)
            if head.status >= 400:
                raise errors.ModelError(route.endpoint, head.status, connection.text())
            if sum(len(name) + len(value) + 4 for name, value in head.headers.items()) > MOST_REPLY_HEADERS:
                raise errors.ValidationError(OVERSIZE_REPLY_HEADERS)
            if "Content-Length" not in head.headers:
                raise errors.ValidationError(NO_LENGTH)
            return b"".join(connection.parts()), head.headers.get("Content-Type")

    def _fail(self, queued: QueuedRequest, reason: str) -> None:
        """Records a failed request."""
        if not queued.failure:
            log.warning("an asynchronous request failed, and there is no S3FailurePath: %s", reason)
            return
        try:
            self._host.objects.write(S3Location.parse(queued.failure), reason.encode(), "text/plain")
        except ObjectError as error:
            log.warning("%s can't be written: %s", queued.failure, error)


def join(path: str | None, folder: str, name: str) -> str:
    """Returns the URI of an object below a configured path, or nothing if there is none."""
    if not path:
        return ""
    return "/".join((path.rstrip("/"), *(part.strip("/") for part in (folder, name) if part)))
