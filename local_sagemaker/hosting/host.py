"""All live endpoints on this machine."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable

from local_sagemaker.hosting.endpoint import LiveEndpoint, Report
from local_sagemaker.hosting.fleets import Fleets
from local_sagemaker.hosting.instances.container_processes import end_orphans
from local_sagemaker.hosting.instances.host_settings import HostSettings
from local_sagemaker.hosting.instances.model_data import remove
from local_sagemaker.hosting.instances.s3_access import Objects

BETWEEN = 0.2


class Host:
    def __init__(self, settings: HostSettings, objects: Objects) -> None:
        self.settings = settings
        self.objects = objects
        self.fleets = Fleets(settings, objects)
        self._endpoints: dict[str, LiveEndpoint] = {}

    def clean_up(self) -> None:
        """Ends processes and removes files that a killed service left. Called before the first endpoint starts."""
        self.settings.pids.mkdir(parents=True, exist_ok=True)
        end_orphans(self.settings.pids)
        remove(self.settings.directory / "instances")

    def find(self, name: str) -> LiveEndpoint | None:
        return self._endpoints.get(name)

    def all(self) -> list[LiveEndpoint]:
        return list(self._endpoints.values())

    def open(self, name: str, report: Report) -> LiveEndpoint:
        endpoint = self._endpoints[name] = LiveEndpoint(name, self.fleets, report)
        return endpoint

    def delete(self, name: str, then: Callable[[], None]) -> None:
        def forget() -> None:
            self._endpoints.pop(name, None)
            then()

        self._endpoints[name].delete(forget)

    def shut_down(self) -> None:
        """Sends SIGTERM to every container, and SIGKILL 30 s later to the remaining ones."""
        ending = [threading.Thread(target=endpoint.shut_down) for endpoint in self.all()]
        for thread in ending:
            thread.start()
        for thread in ending:
            thread.join()

    def kill(self) -> None:
        """Kills every container at once. Called if the service's parent process has ended."""
        for endpoint in self.all():
            endpoint.ended.set()
            for pool in endpoint.pools():
                pool.abandon()
        end_orphans(self.settings.pids)
        time.sleep(BETWEEN)  # Processes that were just starting have their file by then.
        end_orphans(self.settings.pids)
