"""One started endpoint configuration: a fleet for each of its variants."""

from __future__ import annotations

import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

from local_sagemaker.hosting.instances.instance_pool import InstanceStartFailed, Pool
from local_sagemaker.hosting.instances.model_data import remove
from local_sagemaker.hosting.instances.target_models import TargetModels

Document = dict[str, Any]
INSTANCES_ENDED_WITHIN = 5.0


class Variant:
    """A production variant of a started deployment.

    :ivar targets: the target models of a multi-model endpoint.
    :ivar pool: None if the variant's models are inference components.
    """

    def __init__(
        self, plan: Document, pool: Pool | None, base: Path | None, targets: TargetModels | None = None
    ) -> None:
        self.name: str = plan["VariantName"]
        self.plan = plan
        self.weight: float = plan["Weight"]
        self.pool = pool
        self.base = base
        self.targets = targets


def failure_reason(variant: str, error: InstanceStartFailed) -> str:
    return (
        f"The primary container for production variant {variant} did not pass the ping health check. "
        f"Please check CloudWatch logs for this endpoint. ({error})"
    )


class Deployment:
    """A started endpoint configuration."""

    def __init__(self, plan: Document) -> None:
        self.plan = plan
        self.variants: dict[str, Variant] = {}

    def add(self, variant: Variant) -> None:
        self.variants[variant.name] = variant

    def wait_ready(self, cancelled: Callable[[], bool]) -> None:
        """Waits until every variant has as many healthy instances as it should.

        :raises InstanceStartFailed: with the endpoint's FailureReason.
        :raises Cancelled: the wait was cancelled.
        """
        for variant in self.variants.values():
            if variant.pool is not None:
                try:
                    variant.pool.wait_ready(cancelled)
                except InstanceStartFailed as error:
                    raise InstanceStartFailed(failure_reason(variant.name, error)) from error

    def drain(self) -> None:
        """Stops each instance after its last request, so that no request fails."""
        self._end(lambda pool: pool.drain())

    def stop(self) -> None:
        self._end(lambda pool: pool.stop())

    def _end(self, end: Callable[[Pool], None]) -> None:
        for variant in self.variants.values():
            if variant.pool is not None:
                end(variant.pool)
                threading.Thread(target=clean, args=(variant.pool, variant.base), daemon=True).start()

    def wait_ended(self, seconds: float) -> bool:
        pools = [variant.pool for variant in self.variants.values() if variant.pool]
        return all(pool.wait_ended(seconds) for pool in pools)


def clean(pool: Pool, base: Path | None) -> None:
    """Removes the files that the instances shared, after the last one has ended."""
    while not pool.wait_ended(INSTANCES_ENDED_WITHIN):
        pass
    if base is not None:
        remove(base)
