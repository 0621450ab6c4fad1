"""Every endpoint that lives on this machine."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from local_sagemaker.hosting.alarms import Alarms
from local_sagemaker.hosting.endpoint import LiveEndpoint, Report
from local_sagemaker.hosting.fleets import Fleets
from local_sagemaker.hosting.instances.host_settings import HostSettings
from local_sagemaker.hosting.instances.instance import end_left_over
from local_sagemaker.hosting.instances.model_data import remove
from local_sagemaker.hosting.instances.s3_access import Objects

Document = dict[str, Any]
BETWEEN = 0.2


class Host:
    def __init__(self, settings: HostSettings, objects: Objects) -> None:
        self.settings = settings
        self.objects = objects
        self.fleets = Fleets(settings, objects)
        self.alarms = Alarms(settings.s3_url, settings.region)
        self._endpoints: dict[str, LiveEndpoint] = {}
        self._lock = threading.Lock()

    @property
    def pids(self) -> Path:
        """A file for each container's process."""
        return self.settings.directory / "pids"

    def clean_up(self) -> None:
        """Ends and removes what a service that was killed has left; before the first endpoint."""
        self.pids.mkdir(parents=True, exist_ok=True)
        end_left_over(self.pids)
        remove(self.settings.directory / "instances")

    def find(self, name: str) -> LiveEndpoint | None:
        return self._endpoints.get(name)

    def all(self) -> list[LiveEndpoint]:
        with self._lock:
            return list(self._endpoints.values())

    def open(self, name: str, report: Report) -> LiveEndpoint:
        with self._lock:
            endpoint = LiveEndpoint(name, self.fleets, self.settings.timing, self.alarms, report)
            self._endpoints[name] = endpoint
        return endpoint

    def delete(self, name: str, then: Callable[[], None]) -> None:
        endpoint = self._endpoints[name]

        def forget() -> None:
            with self._lock:
                self._endpoints.pop(name, None)
            then()

        endpoint.delete(forget)

    def shut_down(self) -> None:
        """SIGTERM for every container, SIGKILL for what is left 30 s later."""
        ending = [threading.Thread(target=endpoint.shut_down) for endpoint in self.all()]
        for thread in ending:
            thread.start()
        for thread in ending:
            thread.join()

    def kill(self) -> None:
        """At once, as the machine's own end would: the service is an orphan, and ends."""
        for endpoint in self.all():
            endpoint.ended.set()
            for pool in endpoint.pools():
                pool.abandon()
        end_left_over(self.pids)
        time.sleep(BETWEEN)  # What was being started meanwhile has its file by then.
        end_left_over(self.pids)
