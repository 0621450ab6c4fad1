"""`InstanceType`: an instance type with Neuron cores."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class InstanceType:
    """One instance type.

    :param name: EC2's name, `trn2.48xlarge`. SageMaker's name has `ml.` in front.
    :param platform: the compiler's target: `inf2`, `trn1`, `trn2` or `trn3`.
    :param physical_cores: the number of NeuronCores. Divided by the LNC it is the number of logical cores.
    :param host_gib, hbm_gib: the memory of the host and of all devices, in GiB.
    :param lnc: the logical NeuronCore configurations that it supports. The first is the default.
    :param hosting: SageMaker offers it for real-time endpoints.
    """

    name: str
    platform: str
    chips: int
    physical_cores: int
    vcpus: int
    host_gib: int
    hbm_gib: int
    lnc: tuple[int, ...]
    hosting: bool
