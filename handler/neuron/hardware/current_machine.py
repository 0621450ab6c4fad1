"""Which instance this machine is: what was configured, else what its firmware says. No network."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from handler.config.endpoint_config import EndpointConfig
from handler.neuron.hardware.instance_catalogue import find, lookup
from handler.neuron.hardware.instance_type import InstanceType

# EC2's Nitro machines name their instance type here; containers see the host's.
PRODUCT_NAMES = ("/sys/devices/virtual/dmi/id/product_name", "/sys/class/dmi/id/product_name")


def read_text(path: str) -> str | None:
    """A small file's text; None where it is missing or not ours to read."""
    try:
        return Path(path).read_text(encoding="utf-8", errors="replace")[:200]
    except OSError:
        return None


def this_machine(config: EndpointConfig, read: Callable[[str], str | None] = read_text) -> InstanceType | None:
    """The instance to plan for; None on a machine without Neuron cores when none was named.

    A configured name must be one that SageMaker hosts; a machine that we run on may be any we know.

    :raises SettingError: the configured name is no such instance.
    """
    if config.instance:
        return find(config.instance, config.source("instance").name or "ENDPOINT_INSTANCE")
    for path in PRODUCT_NAMES:
        text = read(path)
        instance = lookup(text) if text else None
        if instance is not None:
            return instance
    return None
