"""Serves SageMaker on one port: the control plane at ``/``, the runtime at ``/endpoints/``.

``python -m local_sagemaker.sagemaker_service DIRECTORY [PID]`` is what `neuron-endpoint local up` starts.
"""

from __future__ import annotations

import logging
import os
import shlex
import signal
import sys
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

from flask import Flask

from handler.processes import free_port
from local_sagemaker.control.components import Components
from local_sagemaker.control.endpoint_configs import EndpointConfigs
from local_sagemaker.control.endpoints import Endpoints
from local_sagemaker.control.models import ModelDocuments
from local_sagemaker.control.protocol import Protocol
from local_sagemaker.control.registry import Registry
from local_sagemaker.control.resource_operations import Tags
from local_sagemaker.control.transform_jobs import TransformJobs
from local_sagemaker.gateway.asynchronous import Asynchronous
from local_sagemaker.gateway.container_connection import RuntimeLimits
from local_sagemaker.gateway.event_stream import parse_cut
from local_sagemaker.gateway.hosted_routes import HostedRoutes
from local_sagemaker.gateway.runtime_gateway import Gateway, mount
from local_sagemaker.hosting.host import Host
from local_sagemaker.hosting.instances.container_processes import end_orphans, started_at
from local_sagemaker.hosting.instances.host_settings import HostSettings, HostTiming, image_environment, parse_images
from local_sagemaker.hosting.instances.s3_access import Objects
from local_sagemaker.http_server import KILL, SHUT_DOWN, GatewayServer, ServiceWorker, listen
from local_sagemaker.parent import when_ended
from local_sagemaker.s3_server import S3Server
from local_sagemaker.state_directory import PROCESS, STATUS, RunningService, Settings, StateDirectory, StateInUse

GRACE_BEYOND_KILL = 10
THREADS = 256


def create_app(state: StateDirectory, settings: Settings, s3_url: str) -> Flask:
    """Creates the whole service."""
    objects = Objects(s3_url, settings.region)
    host = Host(host_settings(state.path, settings, s3_url), objects)
    host.clean_up()
    registry = Registry(settings.region, settings.account)
    limits = RuntimeLimits(regular_seconds=settings.regular_seconds, stream_seconds=settings.stream_seconds)
    routes = HostedRoutes(host)
    jobs = TransformJobs(registry, host)
    resources = (
        ModelDocuments(registry, objects),
        EndpointConfigs(registry),
        Endpoints(registry, host),
        Tags(registry),
        jobs,
        Components(registry, host),
    )
    operations = {name: operation for each in resources for name, operation in each.operations().items()}

    app = Flask(__name__, static_folder=None)
    gateway = Gateway(routes, limits, parse_cut(settings.cut_parts))
    mount(app, gateway)
    for of_component in ("", "inference-components/<component>/"):
        app.post(f"/endpoints/<name>/{of_component}openai/v1/chat/completions")(gateway.openai)
    asynchronous = Asynchronous(host, routes, limits)
    app.add_url_rule("/endpoints/<name>/async-invocations", "asynchronous", asynchronous.invoke, methods=["POST"])
    app.add_url_rule("/", "control", Protocol(operations).answer, methods=["POST"])
    app.add_url_rule(STATUS, "status", lambda: instances(host), methods=["POST"])

    def shut_down() -> None:
        deadline = time.monotonic() + settings.kill_after + GRACE_BEYOND_KILL / 2
        ending = jobs.stop_all()
        host.shut_down()
        for job in ending:
            job.wait(max(deadline - time.monotonic(), 0))
        end_orphans(host.settings.pids)

    def kill() -> None:
        jobs.stop_all()
        host.kill()

    app.config.update({SHUT_DOWN: shut_down, KILL: kill})
    return app


def host_settings(directory: Path, settings: Settings, s3_url: str) -> HostSettings:
    return HostSettings(
        directory=directory,
        s3_url=s3_url,
        region=settings.region,
        account=settings.account,
        images=parse_images(settings.images),
        timing=HostTiming(speed=settings.speed, ping_every=settings.ping_every, kill_after=settings.kill_after),
        environment=image_environment(os.environ),
        container_environment=dict(entry.split("=", 1) for entry in settings.environment),
        docker=None if settings.containers == PROCESS else tuple(shlex.split(settings.docker)),
        docker_options=settings.docker_options,
    )


def instances(host: Host) -> dict[str, list[dict[str, Any]]]:
    """Returns the instances of each endpoint, as `local status` shows them."""
    return {
        live.name: [
            {
                "instance": instance.id,
                "state": instance.state.value,
                "pid": instance.pid,
                "address": str(instance.address),
                "log": str(instance.log),
            }
            for instance in live.instances()
        ]
        for live in host.all()
    }


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
    settings = replace(settings, port=listener.getsockname()[1], s3_port=settings.s3_port or free_port())
    state.keep_settings(settings)
    pid, url = os.getpid(), f"http://127.0.0.1:{settings.port}"
    s3 = S3Server(settings.s3_port, state.path / "s3.log")

    def ended(_arbiter: object) -> None:
        s3.stop()
        state.say_ended()
        lock.close()

    try:
        s3.wait_started()
    except BaseException:
        s3.stop()
        raise
    if with_process is not None:
        when_ended(with_process, lambda: os.kill(os.getpid(), signal.SIGTERM))
    GatewayServer(
        lambda: create_app(state, settings, s3.url),
        listener,
        when_ready=lambda: state.say_running(RunningService(pid, started_at(pid), url, s3.url)),
        worker_class=ServiceWorker,
        threads=THREADS,
        graceful_timeout=int(settings.kill_after) + GRACE_BEYOND_KILL,
        on_exit=ended,
    ).run()


if __name__ == "__main__":
    if len(sys.argv) not in (2, 3):
        sys.exit("usage: python -m local_sagemaker.sagemaker_service DIRECTORY [PID]")
    main(sys.argv[1], int(sys.argv[2]) if len(sys.argv) == 3 else None)
