"""Multi-model endpoints: downloads a target model and loads it into an instance with its first request."""

from __future__ import annotations

import hashlib
import http.client
import json
import shutil
import threading
from concurrent.futures import Future, ThreadPoolExecutor, TimeoutError
from contextlib import suppress
from pathlib import Path

from local_sagemaker.hosting.instances.instance import Instance
from local_sagemaker.hosting.instances.model_data import DataError, materialise
from local_sagemaker.hosting.instances.s3_access import Objects

FULL = 507
LOADED_ALREADY = 409


class TargetNotReady(Exception):
    """The target model is still being downloaded or loaded. A later request finds it."""


class LoadFailed(Exception):
    """The container rejected the model. ``status`` and ``said`` are from its reply."""

    def __init__(self, status: int, said: str) -> None:
        super().__init__(said)
        self.status = status
        self.said = said


class TargetModels:
    """The target models of one fleet.

    :param prefix: the S3 prefix of their archives: the container's ModelDataUrl.
    :param patience: how many seconds a request waits for a model to be loaded.
    :param longest: how many seconds a load may take.
    """

    def __init__(self, prefix: str, base: Path, objects: Objects, patience: float, longest: float) -> None:
        self._prefix = prefix.rstrip("/") + "/"
        self._base = base
        self._objects = objects
        self._patience = patience
        self._longest = longest
        self._workers = ThreadPoolExecutor(4, thread_name_prefix="target-model")
        self._lock = threading.Lock()
        self._loaded: dict[str, dict[str, Future[None]]] = {}

    def prepare(self, instance: Instance, target: str) -> str:
        """Loads a model into an instance, unless it is loaded. Returns its name there.

        :raises DataError: the archive does not exist or is broken.
        :raises TargetNotReady: it takes longer than a request waits.
        :raises LoadFailed: the container rejects the model.
        """
        if target.startswith("/") or any(part in ("", ".", "..") for part in target.split("/")):
            raise DataError(f"{target!r} is not the path of a model below {self._prefix}")
        name = hashlib.sha256(target.encode()).hexdigest()[:32]
        with self._lock:
            loaded = self._loaded.setdefault(instance.id, {})
            # Requested last, so unloaded last.
            future = loaded.pop(name, None) or self._workers.submit(self._load, instance, target, name)
            loaded[name] = future
        try:
            future.result(self._patience)
        except TimeoutError as error:
            raise TargetNotReady from error
        except Exception:
            self._forget(instance, name)
            raise
        return name

    def _load(self, instance: Instance, target: str, name: str) -> None:
        directory = self._fetch(target, name)
        while True:
            document = {"model_name": name, "url": str(directory / "model")}
            status, said = self._send(instance, "POST", "/models", json.dumps(document).encode())
            if status // 100 == 2 or status == LOADED_ALREADY:
                return
            if status != FULL or not self._unload_another(instance, name):
                raise LoadFailed(status, said)

    def _fetch(self, target: str, name: str) -> Path:
        directory = self._base / "models" / name
        if not (directory / "model").exists():
            unfinished = directory.with_name(f"{name}.{threading.get_ident()}")
            try:
                materialise({"ModelDataUrl": self._prefix + target}, unfinished, self._objects)
                with suppress(OSError):  # Another instance downloaded it first.
                    unfinished.rename(directory)
            finally:
                shutil.rmtree(unfinished, ignore_errors=True)
        return directory

    def _unload_another(self, instance: Instance, name: str) -> bool:
        """Unloads the least recently requested model. Returns False if there is none."""
        with self._lock:
            loaded = self._loaded[instance.id]
            oldest = next((each for each, future in loaded.items() if each != name and future.done()), None)
            if oldest is not None:
                del loaded[oldest]
        if oldest is not None:
            self._send(instance, "DELETE", f"/models/{oldest}")
        return oldest is not None

    def _forget(self, instance: Instance, name: str) -> None:
        with self._lock:
            self._loaded[instance.id].pop(name, None)

    def _send(self, instance: Instance, method: str, path: str, body: bytes | None = None) -> tuple[int, str]:
        """Sends a request to the container. Returns status and text; 503 if it does not answer in time."""
        try:
            status, said = instance.send(method, path, self._longest, body)
            return status, said.decode("utf-8", "replace")
        except (OSError, http.client.HTTPException) as error:
            return 503, str(error)
