"""Computes a pod's devices, memory, disk and start time from the plan and the sizes of the model.

Sources: AWS Neuron documentation, "Neuron Device Plugin" (the two resources), "Logical NeuronCore configuration";
Kubernetes documentation, "Configure Liveness, Readiness and Startup Probes".
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from math import ceil

from handler.errors import SettingError
from handler.json_value import Json
from handler.neuron.engine_plan import EnginePlan
from handler.neuron.hardware.instance_catalogue import InstanceType
from handler.neuron.lines.plan_draft import engines_here
from model_packaging.deployment.definition.limits import Sizes, start_seconds

DEVICES, CORES = "aws.amazon.com/neuron", "aws.amazon.com/neuroncore"
# The sizes of the groups of connected devices that the Neuron DRA driver names.
CONNECTED = (1, 4, 8, 16)
# The share of a node for pods. The kubelet and the node's daemons use the rest.
OF_NODE = 0.9
# The serving process, the engine's core and their libraries: 0.9 GB measured on the CPU engine, and a reserve.
PROCESSES_GIB = 4
# Shared memory, through which vLLM's processes pass batches. Kubernetes' default is 64 MiB.
SHM_GIB = 8
# Logs, the compiler's files and a second artifact entry.
SPARE_GB = 20
GIB = 1024**3
# Without Neuron devices: the CPU engine's need beside the weights, for trials.
CPU_CORES, CPU_GIB = 2, 6


@dataclass(frozen=True, slots=True)
class PodSize:
    """The resources and the start time of a pod.

    :param devices: the number of `resource`; 0 without an accelerator.
    :param whole_devices: the number of devices for an allocator that does not divide them.
    :param lnc: the logical NeuronCore configuration. None: the instance has only one.
    :param cpus: requested CPUs. There is no limit.
    :param memory, memory_limit: GiB.
    :param shm: GiB; part of the memory.
    :param disk: GB.
    :param startup: seconds within which /ping has to answer 200 for the first time.
    :param reasons: how each value was computed, for people.
    """

    resource: str
    devices: int
    cpus: int
    memory: int
    memory_limit: int
    shm: int
    disk: int
    startup: int
    reasons: tuple[str, ...]
    whole_devices: int = 0
    lnc: int | None = None

    @property
    def device_group(self) -> int:
        """The smallest group of connected devices that has all of the pod's."""
        return next((group for group in CONNECTED if group >= self.whole_devices), CONNECTED[-1])


def pod_size(
    plan: EnginePlan,
    instance: InstanceType | None,
    sizes: Sizes,
    memory: Mapping[str, Json] | None,
    *,
    startup: int | None = None,
) -> PodSize:
    """Returns the size of a pod.

    :param instance: None for the CPU engine.
    :param memory: the estimate as `check` prints it, if there is one.
    :param startup: the start time in seconds, if the user gives it.
    :raises SettingError: the model needs more of the host than a node of this instance has.
    """
    seconds = -(-int(start_seconds(sizes) if startup is None else startup) // 60) * 60
    disk = SPARE_GB + -(-(sizes.fetched + (sizes.weights if sizes.compiles else sizes.sharded)) // 10**9)
    why = [
        f"startup: {seconds} s for {sizes.weights / 1e9:.1f} GB of weights"
        f", of which {sizes.fetched / 1e9:.1f} GB are fetched" + (", and a compile" if sizes.compiles else "")
    ]
    if instance is None:
        weights = -(-2 * sizes.weights // GIB)
        need = CPU_GIB + weights
        return PodSize("", 0, CPU_CORES, need, 2 * need, 1, disk, seconds, tuple(why))
    lnc, whole, resource, devices, share = _devices(plan, instance)
    limit, node = int(instance.host_gib * OF_NODE * share), int(instance.host_gib * OF_NODE)
    shm = max(1, min(SHM_GIB, limit // 8))
    engines = engines_here(plan.engine_args)
    needed = _host_gib(memory)
    request = limit if needed is None else ceil(needed) + PROCESSES_GIB + shm
    if needed is not None and request > node:
        problem = f"loading takes {needed:.0f} GiB of the host, and a pod there has {node} GiB"
        fix = "Store the weights sharded (save_sharded_checkpoint), or use an instance with more memory."
        raise SettingError("--instance", problem, fix)
    count = f"{devices} {'devices' if resource == DEVICES else 'cores'} for " + f"{engines} engines of " * (engines > 1)
    why += [
        f"{resource}: {count}tensor parallel degree {_degree(plan)} on {instance.name} ({instance.chips} devices)",
        f"memory: {request} GiB"
        + (f", of which {needed:.0f} GiB load the weights" if needed is not None else ", the pod's share of the node")
        + f"; at most {limit} GiB, which is {share:.0%} of {OF_NODE:.0%} of {instance.host_gib} GiB",
    ]
    if request > limit:
        why.append(f"memory: {request - limit} GiB more than the devices' share of the node, so fewer pods fit on one")
        limit = request
    cpus = max(1, int(instance.vcpus * OF_NODE * share))
    return PodSize(resource, devices, cpus, request, limit, shm, disk, seconds, tuple(why), whole, lnc)


def _degree(plan: EnginePlan) -> int:
    """Returns the parallel degree of one pod. Several nodes share the degree of the model."""
    given = (plan.engine_args.get(name, 1) for name in ("tensor_parallel_size", "pipeline_parallel_size", "nnodes"))
    tensor, stages, nodes = (value if isinstance(value, int) and value > 0 else 1 for value in given)
    return max(1, tensor * stages // nodes)


def _devices(plan: EnginePlan, instance: InstanceType) -> tuple[int | None, int, str, int, float]:
    """Returns LNC if the instance has several, whole devices, resource, count and the share of the instance.

    Cores are requested only where a logical core is a physical one: what the device plugin counts on Trn2 was not seen.
    """
    given = plan.env.get("NEURON_LOGICAL_NC_CONFIG", "")
    lnc = int(given) if given.isdigit() else instance.lnc[0]
    physical = _degree(plan) * engines_here(plan.engine_args) * lnc
    of_chip, chosen = instance.physical_cores // instance.chips, lnc if len(instance.lnc) > 1 else None
    if physical < of_chip and instance.lnc == (1,):
        return chosen, 1, CORES, physical, physical / instance.physical_cores
    devices = -(-physical // of_chip)
    return chosen, devices, DEVICES, devices, devices / instance.chips


def _host_gib(memory: Mapping[str, Json] | None) -> float | None:
    host = (memory or {}).get("host")
    needed = host.get("needed_gib") if isinstance(host, dict) else None
    return float(needed) if isinstance(needed, (int, float)) else None
