"""The instances that have Neuron cores, by EC2 and SageMaker name."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class InstanceType:
    """One instance type.

    :param name: EC2's name, `trn2.48xlarge`; SageMaker's is `ml.` and the same.
    :param platform: `inf2`, `trn1`, `trn2` or `trn3`: the compiler's target.
    :param physical_cores: NeuronCores; logical ones are these divided by the LNC.
    :param host_gib, hbm_gib: memory of the host and of all devices, in GiB.
    :param lnc: the logical-core configurations it allows; the first is the default.
    :param hosting: SageMaker real-time endpoints have it.
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
