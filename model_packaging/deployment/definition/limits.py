"""Computes SageMaker's time limits and the volume size from sizes and rates.

A limit that is too short ends a healthy start and wastes its cost. One that is too long hides a start that hangs. So
each limit is twice the time at the slowest known rate, within the bounds of the service.
"""

from __future__ import annotations

from dataclasses import dataclass

from handler.errors import SettingError
from handler.json_value import Json
from handler.neuron.hardware.instance_catalogue import GIB, InstanceType

LEAST, MOST = 60, 3600  # seconds; ProductionVariant in the API reference
SAFETY = 2.0
# Bytes a second. SageMaker's disk on Inf2 is an EBS volume, whose slowest kind (gp2) writes 250 MiB/s (EBS user guide).
EBS_RATE = 250e6
# The same onto the four NVMe disks of the large Trn1 and Trn2, each taken for an EBS volume. Not measured.
NVME_RATE = 4 * EBS_RATE
# One core unpacks 190 MB/s of weights from gzip (docs/packaging.md, measured on one core).
UNPACK_RATE = 150e6
# Weights from disk onto the devices: 810 GB in 187 s, sharded while loading (the guide to Llama 3.1 405B on Trn2).
LOAD_RATE = 2e9
# The start of Python, the engine and the warm-up, and the connection to S3 for a restore.
FIXED = 240
# About 15 minutes for a model of 15 GB (the vLLM guide of NxD Inference): 1 minute a GB.
COMPILE_RATE = 1e9 / 60
LARGEST_VOLUME = 512  # GB; ProductionVariant in the API reference
# Space for logs and for the compiler. The image's layers are on another volume.
SPARE_GB = 20
# These have NVMe disks. CreateEndpointConfig rejects a volume size for such instances.
WITH_NVME = ("trn1", "trn2")


@dataclass(frozen=True, slots=True)
class InstanceLimits:
    """The limits of a deployment.

    :param download, startup: seconds.
    :param volume: GB of EBS. None if the instance has its own disks.
    :param reasons: how each limit was computed, for people.
    """

    download: int
    startup: int
    volume: int | None
    reasons: tuple[str, ...] = ()

    def document(self) -> dict[str, Json]:
        return {"download": self.download, "startup": self.startup, "volume": self.volume, "why": list(self.reasons)}


@dataclass(frozen=True, slots=True)
class Sizes:
    """The sizes of a deployment in bytes.

    `packed` is what SageMaker downloads before the container starts. `weights` is what the engine loads. `fetched` is
    what the container itself downloads: the model. `sharded` is what it writes or restores of the weights, a file for
    each rank.

    :param compiles: the start compiles, or may have to.
    :param may_restore: a store has graphs, but whether they are those of this model is not known.
    :param known: False if the size of the model, or what the settings say, cannot be read from here.
    """

    packed: int = 0
    weights: int = 0
    fetched: int = 0
    sharded: int = 0
    archive: bool = False
    compiles: bool = False
    may_restore: bool = False
    known: bool = True


def compute(
    sizes: Sizes,
    instance: InstanceType,
    *,
    download: int | None = None,
    startup: int | None = None,
    volume: int | None = None,
) -> InstanceLimits:
    """Returns the limits of a deployment on an instance.

    :param download, startup: seconds that the user gives instead.
    :param volume: GB that the user gives instead.
    :raises SettingError: it takes longer than an hour, or the package does not fit on the volume.
    """
    if volume and instance.platform in WITH_NVME:
        problem = f"{instance.name} has its own NVMe disks, so SageMaker accepts no volume size for it"
        raise SettingError("--volume", problem, "Leave --volume out.")
    disk = disk_rate(instance)
    rate = UNPACK_RATE if sizes.archive else disk
    needed = LEAST + SAFETY * sizes.packed / rate
    if download is None and needed > MOST:
        fix = "Leave the weights in S3 (ENDPOINT_MODEL=s3://...): the container fetches them in parallel."
        if sizes.archive:
            fix = "Push a prefix instead of an archive: it needs no unpacking."
        raise SettingError("MODEL", f"{sizes.packed / 1e9:.0f} GB may take SageMaker longer than an hour", fix)
    compiling = _compile_seconds(sizes)
    start = start_seconds(sizes, disk) - SAFETY * compiling
    surely = 0.0 if sizes.may_restore else compiling
    if startup is None and start + surely > MOST:
        what, fix = "to start", f"--startup-seconds {MOST} deploys it all the same."
        if surely:
            what = "to compile and start"
            fix = "Compile first (`neuron-endpoint compile`), and give the store as ENDPOINT_ARTIFACT_STORE."
        minutes = (start + surely) / 60
        raise SettingError("--startup-seconds", f"it takes about {minutes:.0f} minutes {what}, SageMaker waits 60", fix)
    why = (
        f"download: {sizes.packed / 1e9:.1f} GB at {rate / 1e6:.0f} MB/s, twice, and {LEAST} s",
        f"startup: {FIXED} s, {sizes.weights / 1e9:.1f} GB of weights at {LOAD_RATE / 1e9:.0f} GB/s and "
        f"{sizes.fetched / 1e9:.1f} GB from S3 at {disk / 1e6:.0f} MB/s, twice"
        + (f"; {compiling / 60:.0f} minutes to compile, twice" if compiling else "")
        + (", if the store lacks its graphs" if sizes.may_restore else "")
        if sizes.known
        else f"startup: {MOST} s, SageMaker's longest: the model's size is not known here (or give --startup-seconds)",
    )
    return InstanceLimits(
        download=_within(download if download is not None else needed),
        startup=_within(startup if startup is not None else start_seconds(sizes, disk) if sizes.known else MOST),
        volume=None if instance.platform in WITH_NVME else volume or _volume(sizes, instance),
        reasons=why,
    )


def disk_rate(instance: InstanceType) -> float:
    return NVME_RATE if instance.platform in WITH_NVME and instance.chips > 1 else EBS_RATE


def start_seconds(sizes: Sizes, disk: float = EBS_RATE) -> float:
    """Returns the time limit of a start: twice the time at the slowest known rates.

    :param disk: bytes a second. Default: the disk of a Kubernetes node, which is mostly an EBS volume.
    """
    loading = sizes.weights / LOAD_RATE + sizes.fetched / disk
    return FIXED + SAFETY * (loading + _compile_seconds(sizes))


def _compile_seconds(sizes: Sizes) -> float:
    return sizes.weights / COMPILE_RATE if sizes.compiles else 0.0


def _volume(sizes: Sizes, instance: InstanceType) -> int:
    # A model of unknown size is at most what the devices hold.
    fetched = sizes.fetched if sizes.known else instance.hbm_gib * GIB
    # An archive and its unpacked files are on the disk at the same time.
    needed = SPARE_GB + -(-(sizes.packed * (2 if sizes.archive else 1) + fetched + sizes.sharded) // 10**9)
    if needed > LARGEST_VOLUME:
        problem = f"{needed} GB are needed, and SageMaker's volumes have at most {LARGEST_VOLUME}"
        fix = (
            f"Use an instance with its own disks (ml.trn1, ml.trn2). --volume {LARGEST_VOLUME} deploys it all the same."
        )
        raise SettingError("MODEL", problem, fix)
    return max(needed, 64)


def _within(seconds: float) -> int:
    return min(MOST, max(LEAST, -(-int(seconds) // 60) * 60))
