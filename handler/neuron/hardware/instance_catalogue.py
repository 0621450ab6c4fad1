"""The Neuron instance types, with their logical cores, memory per core and default tensor-parallel degrees.

Sources: the EC2 pages of Inf2, Trn1 and Trn2 (cores, host and device memory); the Neuron guide "Tensor-parallelism
support" of NxD Inference (LNC 2 on Trn2) and its list of degrees for Inf2 and Trn1. Trn3: a quarter of a Gen1
UltraServer ("Amazon EC2 Trn3 Architecture": 4 servers with 16 chips each; "Trainium3 Architecture": 8 cores and 144 GiB
a chip, LNC). The name is the one that the Neuron driver knows. Gen2 servers have no documented name. What SageMaker's
APIs host: the enumerations of botocore 1.44.5, 2026-11-26 (ProductionVariantInstanceType, TransformInstanceType,
TrainingInstanceType). HyperPod's clusters have trn2.3xlarge too.
"""

from __future__ import annotations

import difflib
import re
from dataclasses import dataclass
from typing import Final

from handler.errors import SettingError

GIB = 1024**3
HOST_PREFIX = "ml."
# Compute, general purpose and memory instances of Intel and AMD. SageMaker's jobs have no `metal` sizes.
CPU_NAME: Final = re.compile(r"(?P<family>[cmr][4-9](?P<attributes>[a-z]*))\.(?P<size>large|(?P<times>\d*)xlarge)")
GRAVITON: Final = "g"


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


INSTANCES: Final[tuple[InstanceType, ...]] = (
    InstanceType("inf2.xlarge", "inf2", 1, 2, 4, 16, 32, (1,), True),
    InstanceType("inf2.8xlarge", "inf2", 1, 2, 32, 128, 32, (1,), True),
    InstanceType("inf2.24xlarge", "inf2", 6, 12, 96, 384, 192, (1,), True),
    InstanceType("inf2.48xlarge", "inf2", 12, 24, 192, 768, 384, (1,), True),
    InstanceType("trn1.2xlarge", "trn1", 1, 2, 8, 32, 32, (1,), True),
    InstanceType("trn1.32xlarge", "trn1", 16, 32, 128, 512, 512, (1,), True),
    InstanceType("trn1n.32xlarge", "trn1", 16, 32, 128, 512, 512, (1,), True),
    InstanceType("trn2.48xlarge", "trn2", 16, 128, 192, 2048, 1536, (2, 1), True),
    InstanceType("trn2.3xlarge", "trn2", 1, 8, 12, 128, 96, (2, 1), False),
    InstanceType("trn2u.48xlarge", "trn2", 16, 128, 192, 2048, 1536, (2, 1), False),
    InstanceType("trn3.48xlarge", "trn3", 16, 128, 192, 2048, 2304, (2, 1), False),
)

# Where SageMaker runs batch transform and training jobs. `InstanceType.hosting` is of endpoints.
TRANSFORM: Final = frozenset(
    ("inf2.xlarge", "inf2.8xlarge", "inf2.24xlarge", "inf2.48xlarge", "trn1.2xlarge", "trn1.32xlarge")
)
TRAINING: Final = frozenset(("trn1.2xlarge", "trn1.32xlarge", "trn1n.32xlarge", "trn2.48xlarge"))

# Other degrees run too, but with collectives that do not fit the hardware's rings. They get a warning, not an error.
LISTED_DEGREES: Final = {"inf2": (1, 2, 4, 8, 24), "trn1": (1, 2, 8, 32)}

# If the weights fill more than this share of a core, a larger degree that pads heads is the better default.
MAX_WEIGHT_SHARE = 0.7


def lookup(name: str) -> InstanceType | None:
    """The instance with this EC2 or SageMaker name, hosted by SageMaker or not; None for any other name."""
    plain = name.strip().lower().removeprefix(HOST_PREFIX)
    return next((instance for instance in INSTANCES if instance.name == plain), None)


def find(name: str, setting: str = "ENDPOINT_INSTANCE", *, hosting: bool = True) -> InstanceType:
    """The instance with this EC2 name (`trn2.48xlarge`) or SageMaker name (`ml.trn2.48xlarge`).

    :param hosting: SageMaker must offer it for real-time endpoints.
    :raises SettingError: there is no such instance, or SageMaker does not host it.
    """
    instance = lookup(name)
    if instance is not None and (instance.hosting or not hosting):
        return instance
    hosted = [instance.name for instance in INSTANCES if instance.hosting]
    plain = name.strip().lower().removeprefix(HOST_PREFIX)
    if instance is not None or plain.startswith(("trn3", "trn2u")):
        fix = f"Use {HOST_PREFIX}trn2.48xlarge, or EC2 without SageMaker."
        if instance is not None:
            fix += f" A plan for EC2, EKS or HyperPod names it {plain}."
        raise SettingError(setting, f"SageMaker does not host {plain[:60]}", fix)
    if plain.startswith("inf1"):
        problem = f"{plain[:60]} has Inferentia 1, on which no line of vLLM runs"
        raise SettingError(setting, problem, f"Use {HOST_PREFIX}inf2.xlarge or larger.")
    near = difflib.get_close_matches(plain, hosted, n=1, cutoff=0.8)
    fix = f"Did you mean {HOST_PREFIX}{near[0]}?" if near else f"Use one of {', '.join(hosted)}, with or without 'ml.'."
    raise SettingError(setting, f"'{name[:60]}' is not an instance with Neuron cores", fix)


def find_for_plan(name: str, setting: str = "ENDPOINT_INSTANCE") -> InstanceType:
    """The instance to plan for. EC2's name (`trn2.3xlarge`) may be of one that SageMaker hosts no endpoints on.

    The container also runs on EC2, EKS and HyperPod. SageMaker's name (`ml.trn2.3xlarge`) is of an endpoint's instance.

    :raises SettingError: as `find`.
    """
    return find(name, setting, hosting=name.strip().lower().startswith(HOST_PREFIX))


def default_lnc(instance: InstanceType) -> int:
    """The default number of physical cores in a logical one: 2 on Trn2 and Trn3, 1 on older instances."""
    return instance.lnc[0]


def logical_cores(instance: InstanceType, lnc: int | None = None) -> int:
    """The number of cores that the software sees.

    :raises SettingError: the instance does not support the LNC.
    """
    lnc = lnc or default_lnc(instance)
    if lnc not in instance.lnc:
        allowed = " or ".join(map(str, instance.lnc))
        raise SettingError(
            "logical_nc_config", f"{instance.name} does not support LNC {lnc}", f"Use {allowed}, or remove it."
        )
    return instance.physical_cores // lnc


def core_memory(instance: InstanceType, lnc: int | None = None) -> int:
    """The device memory of one logical core, in bytes. In GiB: 16 on Inf2 and Trn1, 24 on Trn2, 36 on Trn3 (LNC 2)."""
    return instance.hbm_gib * GIB // logical_cores(instance, lnc)


def degrees(instance: InstanceType, lnc: int | None = None) -> tuple[int, ...]:
    """The usual tensor-parallel degrees of this instance: the listed ones, or powers of two, up to its cores."""
    cores = logical_cores(instance, lnc)
    usual = LISTED_DEGREES.get(instance.platform) or tuple(2**power for power in range(12))
    return tuple(degree for degree in usual if degree <= cores)


def unusual_degree(instance: InstanceType, degree: int, lnc: int | None = None) -> bool:
    """Whether the degree is not a usual one. It may run slowly, or not at all."""
    return degree not in degrees(instance, lnc)


# What divides it divides the heads of most models (32, 64, 96). Some versions of vLLM do not start with another degree.
COMMON_HEADS: Final = 32


def default_degree(
    instance: InstanceType, heads: int = 0, weight_bytes: int | None = None, lnc: int | None = None
) -> int:
    """The default tensor-parallel degree for a model.

    It is the largest usual degree that divides the attention heads. More cores mean more memory bandwidth, and a degree
    that does not divide the heads makes NxD Inference pad them, which costs memory and time. If the weights would fill
    most of those cores, it is the largest usual degree, because padding is better than not fitting (Llama 4 Scout, 40
    heads, on Trn2).

    :param heads: 0 if they are not known, because the model cannot be read here.
    """
    usual = degrees(instance, lnc)
    even = [degree for degree in usual if (heads or COMMON_HEADS) % degree == 0]
    best = max(even)
    if weight_bytes is not None and weight_bytes / best > MAX_WEIGHT_SHARE * core_memory(instance, lnc):
        return max(usual)
    return best


@dataclass(frozen=True, slots=True)
class CpuInstance:
    """A CPU instance type, which compiles for the native lines and serves nothing.

    :param name: EC2's name, `c7i.24xlarge`.
    :param arm: it has a Graviton processor, on which the Neuron compiler does not run.
    """

    name: str
    vcpus: int
    arm: bool


def cpu_instance(name: str) -> CpuInstance | None:
    """The CPU instance with this EC2 or SageMaker name; None for any other name."""
    plain = name.strip().lower().removeprefix(HOST_PREFIX)
    match = CPU_NAME.fullmatch(plain)
    if match is None:
        return None
    vcpus = 2 if match["size"] == "large" else 4 * int(match["times"] or 1)
    return CpuInstance(plain, vcpus, GRAVITON in match["attributes"])
