"""CPU instances, which compile for the native lines and serve nothing."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Final

from handler.neuron.hardware.instance_catalogue import HOST_PREFIX

# Compute, general purpose and memory instances of Intel and AMD. SageMaker's jobs have no `metal` sizes.
NAME: Final = re.compile(r"(?P<family>[cmr][4-9](?P<attributes>[a-z]*))\.(?P<size>large|(?P<times>\d*)xlarge)")
GRAVITON: Final = "g"


@dataclass(frozen=True, slots=True)
class CpuInstance:
    """A CPU instance type.

    :param name: EC2's name, `c7i.24xlarge`.
    :param arm: it has a Graviton processor, on which the Neuron compiler does not run.
    """

    name: str
    vcpus: int
    arm: bool


def cpu_instance(name: str) -> CpuInstance | None:
    """The CPU instance with this EC2 or SageMaker name; None for any other name."""
    plain = name.strip().lower().removeprefix(HOST_PREFIX)
    found = NAME.fullmatch(plain)
    if found is None:
        return None
    vcpus = 2 if found["size"] == "large" else 4 * int(found["times"] or 1)
    return CpuInstance(plain, vcpus, GRAVITON in found["attributes"])
