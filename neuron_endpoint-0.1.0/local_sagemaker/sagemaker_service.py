"""Serves SageMaker on one port: the control plane at ``/``, the runtime at ``/endpoints/``.

``python -m local_sagemaker.sagemaker_service DIRECTORY [PID]`` is what `neuron-endpoint local up` starts.
"""

from __future__ import annotations

import logging
import os
import secrets
import shlex
import signal
import sys
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path

from flask import Flask, request
from werkzeug.wrappers import Response

from local_sagemaker.administration import Administration
from local_sagemaker.control.components import Components
from local_sagemaker.control.endpoint_configs import EndpointConfigs
from local_sagemaker.control.endpoints import Endpoints
from local_sagemaker.control.models import ModelDocuments
from local_sagemaker.control.protocol import ControlService, Protocol, refusal
from local_sagemaker.control.quotas import Quotas
from local_sagemaker.control.registry import Registry
from local_sagemaker.control.scaling import Scaling
from local_sagemaker.control.tags import Tags
from local_sagemaker.control.transform_jobs import TransformJobs
from local_sagemaker.gateway.body_reader import read_body
from local_sagemaker.gateway.gateway_settings import RuntimeLimits
from local_sagemaker.gateway.payload_parts import parse_cut
from local_sagemaker.gateway.runtime_gateway import Gateway, mount
from local_sagemaker.hosting.host import Host
from local_sagemaker.hosting.instances.docker import Docker
from local_sagemaker.hosting.instances.host_settings import HostSettings, HostTiming, Images, image_environment
from local_sagemaker.hosting.instances.s3_access import Objects
from local_sagemaker.http_server import KILL, SHUT_DOWN, GatewayServer, ServiceWorker, listen
from local_sagemaker.parent import when_ended
from local_sagemaker.request_signature import AccessKeys, SignatureError
from local_sagemaker.runtime.asynchronous import Asynchronous
from local_sagemaker.runtime.hosted_routes import HostedRoutes
from local_sagemaker.runtime.openai_path import OpenAIPath
from local_sagemaker.runtime.planned_errors import PlannedErrors
from local_sagemaker.s3.s3_server import S3Server
from local_sagemaker.state_directory import COMMANDS, PROCESS, RunningService, Settings, StateDirectory, StateInUse

GRACE_BEYOND_KILL = 10
THREADS = 256


def create_app(state: StateDirectory, settings: Settings, s3_url: str, token: str) -> Flask:
    """Creates the whole service. Its endpoints start at once."""
    objects = Objects(s3_url, settings.region)
    host = Host(host_settings(state.path, settings, s3_url), objects)
    host.clean_up()
    registry = Registry(state.path / "registry.json", settings.region, settings.account)
    limits = RuntimeLimits(regular_seconds=settings.regular_seconds, stream_seconds=settings.stream_seconds)
    routes = HostedRoutes(host)
    quotas = Quotas.parse(settings.quotas)
    endpoints = Endpoints(registry, host, quotas)
    jobs = TransformJobs(registry, host, quotas)
    components = Components(registry, host, quotas)
    resources = (
        ModelDocuments(registry, objects, quotas),
        EndpointConfigs(registry, quotas),
        endpoints,
        Tags(registry),
        jobs,
        components,
    )
    operations = {name: operation for each in resources for name, operation in each.operations().items()}

    app = Flask(__name__, static_folder=None)
    mount(app, Gateway(routes, limits, parse_cut(settings.cut_parts)))
    if settings.access_key:
        keys = AccessKeys(settings.access_key, settings.secret_key, settings.region)
        app.before_request(lambda: check_signature(keys, limits.body_bytes))
    openai = OpenAIPath(routes, limits)
    app.add_url_rule("/endpoints/<name>/openai/v1/<path:path>", view_func=openai.forward, methods=["GET", "POST"])
    asynchronous = Asynchronous(host, routes, limits, state.path / "asynchronous")
    app.add_url_rule("/endpoints/<name>/async-invocations", "asynchronous", asynchronous.invoke, methods=["POST"])
    scaling = Scaling(registry).operations()
    planned = PlannedErrors({"sagemaker": operations, "application-autoscaling": scaling})
    planned.mount(app, settings.region, settings.account, limits.body_bytes)
    control = Protocol(
        ControlService("sagemaker", operations, planned.check),
        ControlService("application-autoscaling", scaling, planned.check),
    )
    app.add_url_rule("/", "control", control.answer, methods=["POST"])
    Administration(host, planned, token).mount(app)

    def shut_down() -> None:
        jobs.shut_down(settings.kill_after)
        host.shut_down()

    def kill() -> None:
        jobs.stop_all()
        host.kill()

    app.config.update({SHUT_DOWN: shut_down, KILL: kill})
    jobs.restore()
    endpoints.restore()
    components.restore()
    asynchronous.restore()
    return app


def host_settings(directory: Path, settings: Settings, s3_url: str) -> HostSettings:
    docker = Docker(tuple(shlex.split(settings.docker)), settings.docker_network, settings.docker_options)
    return HostSettings(
        directory=directory,
        s3_url=s3_url,
        region=settings.region,
        account=settings.account,
        images=Images.parse(settings.images),
        timing=HostTiming(speed=settings.speed, ping_every=settings.ping_every, kill_after=settings.kill_after),
        environment=image_environment(os.environ),
        container_environment=dict(entry.split("=", 1) for entry in settings.environment),
        docker=None if settings.containers == PROCESS else docker,
    )


def check_signature(keys: AccessKeys, limit: int) -> Response | None:
    if request.path.startswith(COMMANDS):
        return None
    url = f"{request.scheme}://{request.headers.get('Host', '')}{request.environ['RAW_URI']}"
    headers = {name.lower(): value for name, value in request.headers.items()}
    try:
        keys.check(request.method, url, headers, read_body(limit), datetime.now(UTC))
    except SignatureError as error:
        return refusal(error)
    return None


def main(directory: str, with_process: int | None) -> None:
    """Runs the service until it is ended.

    :param with_process: end when this process ends, as with `local down`.
    """
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(levelname)s %(message)s")
    state = StateDirectory(Path(directory).absolute())
    try:
        lock = state.lock()
        settings = state.settings()
        listener = listen(settings.port)
    except (StateInUse, OSError) as error:
        sys.exit(str(error))
    if not settings.s3_port:
        with listen(0) as probe:
            settings = replace(settings, s3_port=probe.getsockname()[1])
    settings = replace(settings, port=listener.getsockname()[1])
    state.keep_settings(settings)
    token = secrets.token_urlsafe(24)
    url = f"http://127.0.0.1:{settings.port}"
    s3 = S3Server(settings.s3_port, state.path / "s3", state.path / "s3.log")

    def ended(_arbiter: object) -> None:
        s3.stop()
        state.say_ended()
        lock.close()

    try:
        s3.wait_started()
    except RuntimeError as error:
        s3.stop()
        sys.exit(str(error))
    except BaseException:
        s3.stop()
        raise
    if with_process is not None:
        when_ended(with_process, lambda: os.kill(os.getpid(), signal.SIGTERM))
    GatewayServer(
        lambda: create_app(state, settings, s3.url, token),
        listener,
        when_ready=lambda: state.say_running(RunningService(os.getpid(), url, s3.url, token)),
        worker_class=ServiceWorker,
        threads=THREADS,
        graceful_timeout=int(settings.kill_after) + GRACE_BEYOND_KILL,
        on_exit=ended,
    ).run()


if __name__ == "__main__":
    if len(sys.argv) not in (2, 3):
        sys.exit("usage: python -m local_sagemaker.sagemaker_service DIRECTORY [PID]")
    main(sys.argv[1], int(sys.argv[2]) if len(sys.argv) == 3 else None)
