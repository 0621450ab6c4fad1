"""Finds the instance type of this machine from the configuration, else from its firmware. Uses no network."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from handler.config.endpoint_config import EndpointConfig
from handler.neuron.hardware.instance_catalogue import InstanceType, find_for_plan, lookup

# EC2's Nitro machines have their instance type here. Containers see the host's.
PRODUCT_NAMES = ("/sys/devices/virtual/dmi/id/product_name", "/sys/class/dmi/id/product_name")


def read_text(path: str) -> str | None:
    """The text of a small file; None if it does not exist or cannot be read."""
    try:
        return Path(path).read_text(encoding="utf-8", errors="replace")[:200]
    except OSError:
        return None


def this_machine(config: EndpointConfig, read: Callable[[str], str | None] = read_text) -> InstanceType | None:
    """The instance to plan for; None if none is configured and this machine has no Neuron cores.

    An instance that is configured by SageMaker's name (`ml.`) must be one that SageMaker hosts.

    :raises SettingError: the configured instance is unknown, or SageMaker does not host it.
    """
    if config.instance:
        return find_for_plan(config.instance, config.source("instance").name or "ENDPOINT_INSTANCE")
    for path in PRODUCT_NAMES:
        text = read(path)
        instance = lookup(text) if text else None
        if instance is not None:
            return instance
    return None
