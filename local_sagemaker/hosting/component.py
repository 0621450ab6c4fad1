"""A live inference component: copies of a model on an endpoint's variant, or an adapter that is loaded into them."""

from __future__ import annotations

import http.client
import json
import threading
from pathlib import Path
from typing import Any
from urllib.parse import quote

from local_sagemaker.hosting.instances.instance import Instance
from local_sagemaker.hosting.instances.instance_pool import InstanceStartFailed, Pool
from local_sagemaker.hosting.instances.model_data import remove

LOAD_SECONDS = 60.0
LONGEST_REASON = 500


class Component:
    """A component is either copies of a model (``pool``), or an adapter of another component (``base``).

    :ivar directory: the model's data, or the adapter's.
    """

    def __init__(self, name: str, variant: str, directory: Path, pool: Pool | None, base: Component | None) -> None:
        self.name = name
        self.variant = variant
        self.pool = pool
        self.base = base
        self._directory = directory
        self._loaded: set[str] = set()
        self._loading = threading.Lock()

    def copies(self) -> Pool:
        """Returns the processes that serve it."""
        pool = self.pool or (self.base.pool if self.base else None)
        assert pool is not None
        return pool

    def prepare(self, instance: Instance) -> None:
        """Loads the adapter into an instance, unless it is loaded. A replaced instance needs it again.

        :raises InstanceStartFailed: the container rejects the adapter.
        """
        if self.base is None or instance.id in self._loaded:
            return
        with self._loading:
            if instance.id not in self._loaded:
                source = str(self._directory / "model")
                call(instance, "POST", "/adapters", {"name": self.name, "src": source, "preload": True, "pin": False})
                self._loaded.add(instance.id)

    def stop(self) -> None:
        if self.pool is not None:
            self.pool.drain()
            return
        self.unload()
        remove(self._directory)

    def unload(self) -> None:
        """Unloads the adapter from its instances. Its next request loads it again."""
        for instance in self.copies().instances():
            if instance.id in self._loaded:
                try:
                    call(instance, "DELETE", f"/adapters/{quote(self.name)}", None)
                except InstanceStartFailed:
                    pass  # It ends with its process.
        self._loaded.clear()


def call(instance: Instance, method: str, path: str, body: dict[str, Any] | None) -> bytes:
    """Sends a request to the container.

    :raises InstanceStartFailed: there is no reply, or its status is not 2xx.
    """
    try:
        status, said = instance.send(method, path, LOAD_SECONDS, None if body is None else json.dumps(body).encode())
    except (OSError, http.client.HTTPException) as error:
        raise InstanceStartFailed(f"the container did not answer {method} {path} ({error})") from error
    if status // 100 != 2:
        text = said.decode("utf-8", "replace")[:LONGEST_REASON]
        raise InstanceStartFailed(f"{method} {path} was answered {status} by the container: {text}")
    return said
