"""Starts an endpoint configuration on this machine: fetches data, builds environment and command, starts instances."""

from __future__ import annotations

import shutil
import threading
import uuid
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from local_sagemaker.hosting.instances.container_processes import read_only_model_command
from local_sagemaker.hosting.instances.host_settings import HostSettings, default_command
from local_sagemaker.hosting.instances.instance import Launch
from local_sagemaker.hosting.instances.instance_pool import Cancelled, InstanceStartFailed, Pool
from local_sagemaker.hosting.instances.instance_routing import prefix_aware
from local_sagemaker.hosting.instances.model_data import DataError, fetch_within, materialise, remove
from local_sagemaker.hosting.instances.runner import AsProcess, InDocker, Runner
from local_sagemaker.hosting.instances.s3_access import Objects
from local_sagemaker.hosting.instances.target_models import TargetModels

Document = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Variant:
    """A production variant of a started deployment.

    :ivar pool: None if the variant's models are inference components.
    :ivar targets: the target models of a multi-model endpoint.
    """

    name: str
    weight: float
    pool: Pool | None = None
    targets: TargetModels | None = None


class Deployment:
    """A started endpoint configuration."""

    def __init__(self, plan: Document) -> None:
        self.plan = plan
        self.variants: dict[str, Variant] = {}

    def pools(self) -> list[Pool]:
        return [variant.pool for variant in self.variants.values() if variant.pool is not None]

    def wait_ready(self, cancelled: Callable[[], bool]) -> None:
        """Waits until every variant has as many healthy instances as it should.

        :raises InstanceStartFailed: with the endpoint's FailureReason.
        :raises Cancelled: the wait was cancelled.
        """
        for variant in self.variants.values():
            try:
                if variant.pool is not None:
                    variant.pool.wait_ready(cancelled)
            except InstanceStartFailed as error:
                raise InstanceStartFailed(
                    f"The primary container for production variant {variant.name} did not pass the ping health check. "
                    f"Please check CloudWatch logs for this endpoint. ({error})"
                ) from error

    def stop(self) -> None:
        for pool in self.pools():
            pool.stop()


class Fleets:
    """Starts fleets of instances."""

    def __init__(self, settings: HostSettings, objects: Objects) -> None:
        self.settings = settings
        self._objects = objects
        self._read_only_model_command = read_only_model_command()

    def fetch(self, endpoint: str, name: str, container: Document, timeouts: Document) -> Path:
        """Downloads the model's data to a new directory, and returns that.

        :raises DataError: it fails or takes too long.
        """
        base = self.settings.directory / "instances" / endpoint / f"{name}-{uuid.uuid4().hex[:8]}"
        timing = self.settings.timing
        seconds = timing.scaled(timeouts.get("ModelDataDownloadTimeoutInSeconds", timing.download_seconds))
        base.mkdir(parents=True, exist_ok=True)
        try:
            fetch_within(seconds, lambda: materialise(container, base, self._objects), name)
        except BaseException:
            remove(base)
            raise
        return base

    def prepare(self, endpoint: str, name: str, container: Document, timeouts: Document) -> Launch:
        """Downloads the model's data, and returns what the instances of the model start with.

        :raises InstanceStartFailed: the command does not exist on this machine.
        :raises DataError: the download fails or takes too long.
        """
        settings, timing, runner = self.settings, self.settings.timing, self._runner(container)
        startup = timeouts.get("ContainerStartupHealthCheckTimeoutInSeconds", timing.startup_seconds)
        return Launch(
            runner=runner,
            base=self.fetch(endpoint, name, container, timeouts),
            logs=settings.directory / "logs" / endpoint / name,
            startup_seconds=timing.scaled(startup),
            timing=timing,
            pids=settings.pids,
        )

    def _runner(self, container: Document) -> Runner:
        """Returns the runner of an image: a process or a Docker container.

        :raises InstanceStartFailed: the image's command does not exist on this machine.
        """
        settings, image = self.settings, container["Image"]
        command = settings.command(image)
        if command is None and settings.docker is not None:
            _check_command(image, settings.docker[0])
            environment = {**settings.container_environment, **self._environment(container)}
            return InDocker(settings.docker, settings.docker_options, image, environment)
        command = command or default_command()
        _check_command(image, command[0])
        environment = {**settings.environment, **settings.container_environment, **self._environment(container)}
        return AsProcess((*self._read_only_model_command, *command), environment)

    def _environment(self, container: Document) -> Mapping[str, str]:
        """Returns SageMaker's variables and those for the local S3, then the model's own.

        An isolated container has no credentials and no S3, as it reaches neither on AWS.
        """
        settings = self.settings
        multi = {"SAGEMAKER_MULTI_MODEL": "true"} if container.get("Mode") == "MultiModel" else {}
        place = {
            "AWS_REGION": settings.region,
            "AWS_DEFAULT_REGION": settings.region,
            "AWS_EC2_METADATA_DISABLED": "true",
        }
        storage = {
            "AWS_ACCESS_KEY_ID": "local",
            "AWS_SECRET_ACCESS_KEY": "local",
            "AWS_ENDPOINT_URL_S3": settings.s3_url,
        }
        network = {"HF_HUB_OFFLINE": "1"} if container.get("EnableNetworkIsolation") else storage
        return {**place, **network, **multi, **container.get("Environment", {})}

    def start(
        self,
        endpoint: str,
        deployment: Deployment,
        changed: threading.Condition,
        cancelled: Callable[[], bool],
    ) -> None:
        """Starts every variant, and waits until its instances are in service.

        :param deployment: an empty deployment. Each fleet is added under ``changed`` when its processes start. So a
            canceller that takes the lock finds all of them.
        :raises InstanceStartFailed: with the endpoint's FailureReason. Started instances are being stopped.
        :raises Cancelled: the start was cancelled. Started instances are being stopped.
        """
        try:
            for planned in deployment.plan["Variants"]:
                self._variant(endpoint, planned, deployment, changed, cancelled)
            deployment.wait_ready(cancelled)
        except BaseException:
            deployment.stop()
            raise

    def _variant(
        self,
        endpoint: str,
        planned: Document,
        deployment: Deployment,
        changed: threading.Condition,
        cancelled: Callable[[], bool],
    ) -> None:
        name, container = planned["VariantName"], planned.get("Container")
        if container is None:
            deployment.variants[name] = Variant(name, planned["Weight"])
            return
        try:
            launch = self.prepare(endpoint, name, container, planned)
        except DataError as error:
            raise InstanceStartFailed(str(error)) from error
        strategy = planned.get("RoutingConfig", {}).get("RoutingStrategy")
        with changed:
            if cancelled():
                remove(launch.base)
                raise Cancelled
            pool = Pool(launch, planned["Count"], changed, strategy not in (None, "RANDOM"), prefix_aware(planned))
            targets = self._targets(container, launch.base)
            deployment.variants[name] = Variant(name, planned["Weight"], pool, targets)

    def _targets(self, container: Document, base: Path) -> TargetModels | None:
        if container.get("Mode") != "MultiModel":
            return None
        timing = self.settings.timing
        times = timing.scaled(timing.target_model_patience), timing.scaled(timing.target_model_load)
        return TargetModels(container["ModelDataUrl"], base, self._objects, *times)


def _check_command(image: str, command: str) -> None:
    if shutil.which(command) is None:
        raise InstanceStartFailed(f"The command {command} of the image {image} does not exist.")
