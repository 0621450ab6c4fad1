"""InvokeEndpointAsync: accepts requests at once and runs them from a queue. Input, output and failures are in S3."""

from __future__ import annotations

import base64
import json
import logging
import threading
import time
import uuid
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict
from pathlib import Path
from typing import Any

from flask import request
from werkzeug.datastructures import Headers
from werkzeug.wrappers import Response

from local_sagemaker.gateway import gateway_errors as errors
from local_sagemaker.gateway import invocation_headers as headers
from local_sagemaker.gateway.body_reader import read_body
from local_sagemaker.gateway.container_connection import UpstreamError
from local_sagemaker.gateway.gateway_settings import RuntimeLimits
from local_sagemaker.gateway.runtime_gateway import reach
from local_sagemaker.hosting.host import Host
from local_sagemaker.hosting.instances.s3_access import ObjectError, S3Location
from local_sagemaker.json_file import replace_json
from local_sagemaker.runtime.accepted_request import Accepted, header_params, join
from local_sagemaker.runtime.hosted_routes import HostedRoutes
from local_sagemaker.runtime.notifications import InvocationOutcome, Publisher, message

log = logging.getLogger(__name__)

INPUT_BYTES = 1024**3
INLINE_BYTES = 128_000
TTL_SECONDS = 21_600
INVOCATION_SECONDS = 900
MOST_REPLY_HEADERS = 4096
# SageMaker chooses a number if the configuration has none. How it does is not public.
CONCURRENT_PER_INSTANCE = 4
TRY_AGAIN_AFTER = 0.25


class Expired(Exception):
    """The request was in the queue for longer than RequestTTLSeconds."""


class Asynchronous:
    def __init__(self, host: Host, routes: HostedRoutes, limits: RuntimeLimits, directory: Path) -> None:
        self._host = host
        self._routes = routes
        self._limits = limits
        self._directory = directory
        self._queues: dict[str, ThreadPoolExecutor] = {}
        self._lock = threading.Lock()
        self._publisher = Publisher(host.settings.s3_url, host.settings.region)
        directory.mkdir(exist_ok=True)

    def invoke(self, name: str) -> Response:
        """Accepts a request.

        :raises GatewayError: the endpoint does not exist or is not asynchronous, or a header is invalid.
        """
        body = read_body(self._limits.body_bytes)
        params = header_params(name)
        plan = self._plan(name)
        config = plan["AsyncInferenceConfig"]
        passed = tuple(headers.for_container(request.headers, headers.ASYNCHRONOUS))
        if ("InputLocation" in params) == bool(body):
            raise errors.ValidationError("Exactly one of InputLocation and Body must be given.")
        if len(body) > INLINE_BYTES:
            raise errors.OversizeBody("of InvokeEndpointAsync", INLINE_BYTES)
        at = time.time()
        name_of_output = str(uuid.uuid4())
        output = config["OutputConfig"]
        folder = params.get("S3OutputPathExtension", "")
        accepted = Accepted(
            id=name_of_output,
            endpoint=name,
            input=params.get("InputLocation", ""),
            inline=base64.b64encode(body).decode(),
            headers=passed,
            output=join(output.get("S3OutputPath"), folder, params.get("Filename", f"{name_of_output}.out")),
            failure=join(output.get("S3FailurePath"), folder, f"{name_of_output}-error.out"),
            expires=at + self._host.settings.timing.scaled(params.get("RequestTTLSeconds", TTL_SECONDS)),
            timeout=params.get("InvocationTimeoutSeconds", INVOCATION_SECONDS),
            inference_id=params.get("InferenceId", name_of_output),
            received=at,
            topics=output,
        )
        replace_json(self._file(accepted), asdict(accepted))
        self._enqueue(accepted, config, sum(each["Count"] for each in plan["Variants"]))
        reply = Response(json.dumps({"InferenceId": accepted.inference_id}), 202, content_type="application/json")
        for header, location in (("OutputLocation", accepted.output), ("FailureLocation", accepted.failure)):
            if location:
                reply.headers[headers.AMZN + header] = location
        return reply

    def restore(self) -> None:
        """Queues the requests again that the last run accepted but did not finish."""
        for file in self._directory.glob("*.json"):
            kept = json.loads(file.read_text(encoding="utf-8"))
            accepted = Accepted(**{**kept, "headers": tuple((name, value) for name, value in kept["headers"])})
            self._enqueue(accepted, {})

    def _plan(self, name: str) -> Mapping[str, Any]:
        live = self._host.find(name)
        current = live.current if live else None
        if live is None or current is None:
            raise errors.EndpointNotFound(name, self._host.settings.account)
        if "AsyncInferenceConfig" not in current.plan:
            raise errors.NotAsynchronous(name)
        return current.plan

    def _enqueue(self, accepted: Accepted, config: Mapping[str, Any], instances: int = 1) -> None:
        with self._lock:
            queue = self._queues.get(accepted.endpoint)
            if queue is None:
                per_instance = config.get("ClientConfig", {}).get("MaxConcurrentInvocationsPerInstance")
                count = int(per_instance or CONCURRENT_PER_INSTANCE) * instances
                queue = ThreadPoolExecutor(count, thread_name_prefix=f"async-{accepted.endpoint}")
                self._queues[accepted.endpoint] = queue
        queue.submit(self._carry_out, accepted)

    def _carry_out(self, accepted: Accepted) -> None:
        try:
            body, content_type = self._answer(accepted)
            if accepted.output:
                self._host.objects.write(S3Location.parse(accepted.output), body, content_type)
        except (errors.GatewayError, ObjectError, Expired, UpstreamError) as error:
            self._fail(accepted, str(error), error.original.encode() if isinstance(error, errors.ModelError) else b"")
        except Exception:
            log.exception("the asynchronous request %s failed", accepted.id)
            self._fail(accepted, "The service failed. Its log has the reason.", b"")
        else:
            self._notify(accepted, InvocationOutcome(None, accepted.output, content_type, body))
        self._file(accepted).unlink(missing_ok=True)

    def _notify(self, accepted: Accepted, outcome: InvocationOutcome) -> None:
        config = accepted.topics.get("NotificationConfig") or {}
        kind = "Success" if outcome.reason is None else "Error"
        topic: str | None = config.get(f"{kind}Topic")
        if topic is None:
            return
        with_body = f"{kind.upper()}_NOTIFICATION_TOPIC" in (config.get("IncludeInferenceResponseIn") or ())
        passed = dict(accepted.headers)
        params = {
            "accept": passed.get("Accept", ""),
            "contentType": passed.get("Content-Type", ""),
            "endpointName": accepted.endpoint,
            "inputLocation": accepted.input,
        }
        params = {name: value for name, value in params.items() if value}
        region = self._host.settings.region
        notification = message(params, accepted.inference_id, accepted.received, region, outcome, with_body)
        self._publisher.publish(topic, notification)

    def _answer(self, accepted: Accepted) -> tuple[bytes, str | None]:
        if accepted.input:
            body = self._host.objects.read(S3Location.parse(accepted.input), INPUT_BYTES)
        else:
            body = base64.b64decode(accepted.inline)
        while True:
            if time.time() > accepted.expires:
                raise Expired("The request expired: it was not processed within RequestTTLSeconds.")
            try:
                return self._invoke(accepted, body)
            except (errors.ServiceUnavailable, errors.Throttled):
                time.sleep(TRY_AGAIN_AFTER)  # An instance may be starting. A queued request can wait for it.

    def _invoke(self, accepted: Accepted, body: bytes) -> tuple[bytes, str | None]:
        route = self._routes.route(accepted.endpoint, Headers(accepted.headers), asynchronous=True)
        with reach(route, self._limits, accepted.timeout, None) as connection:
            head = connection.post(route.path, accepted.headers, body)
            if head.status >= 400:
                raise errors.ModelError(route.endpoint, head.status, connection.text())
            if sum(len(name) + len(value) + 4 for name, value in head.headers.items()) > MOST_REPLY_HEADERS:
                raise errors.OversizeReplyHeaders(MOST_REPLY_HEADERS)
            return b"".join(connection.parts()), head.get("Content-Type")

    def _fail(self, accepted: Accepted, reason: str, said: bytes) -> None:
        """Records a failed request.

        :param said: the container's reply.
        """
        if not accepted.failure:
            log.warning("the asynchronous request %s failed, and there is no S3FailurePath: %s", accepted.id, reason)
        else:
            try:
                self._host.objects.write(S3Location.parse(accepted.failure), reason.encode(), "text/plain")
            except ObjectError as error:
                log.warning("the failure of the asynchronous request %s can't be written: %s", accepted.id, error)
        self._notify(accepted, InvocationOutcome(reason, accepted.failure, "text/plain", said))

    def _file(self, accepted: Accepted) -> Path:
        return self._directory / f"{accepted.id}.json"
