"""A fleet that starts together and finds nothing compiled, in virtual time: the code of a start as it is.

Simulated are the machines' clocks, the bucket and the compiler, which writes a few bytes; lease, acquisition,
publication and restore are the product's own. `python -m tests.simulation` lets the compiling instance die at every
step of the protocol, one after the other.
"""

from __future__ import annotations

import shutil
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from random import Random

from handler.artifacts.identity.artifact_key import ArtifactKey
from handler.artifacts.lease.acquisition import Acquisition, AcquisitionOptions
from handler.artifacts.lease.compile_errors import CompileFailed
from handler.artifacts.restore.restore import RestoreOptions, restore
from handler.artifacts.store import object_names as layout
from handler.artifacts.store.artifact_store import ArtifactStore
from handler.artifacts.store.manifest import Manifest
from handler.json_value import Json
from handler.storage.storage_errors import ArtifactError
from tests.handler.artifacts.acquire_program import Acquired, Compilation, acquire
from tests.simulation.fleet_bucket import Bucket, BucketOf, BucketSource, FaultRate
from tests.simulation.fleet_fate import Death, Deaths
from tests.simulation.fleet_time import Machine, VirtualTime
from tests.simulation.virtual_threads import virtual_threads

SHARDS = 2


def keys_of(endpoint: int) -> tuple[ArtifactKey, ...]:
    """The keys of an endpoint's model. Each endpoint has a model of its own."""
    digests = {"graph": f"a{endpoint:063}", "weights": f"b{endpoint:063}"}
    return tuple(ArtifactKey(kind, digest, {"model": "simulated"}) for kind, digest in digests.items())


KEYS = keys_of(0)


@dataclass(frozen=True, slots=True)
class Scenario:
    """One simulation. Times in seconds.

    :param endpoints: the instances are spread over so many.
    :param within: the instances start within this time.
    :param deadline: of each instance, from its own start on.
    :param failing: the compiler refuses the configuration.
    """

    instances: int = 1000
    endpoints: int = 1
    within: float = 60.0
    compile: float = 900.0
    deadline: float = 7200.0
    deaths: Sequence[Death] = ()
    failing: bool = False
    faults: float = 0.0
    options: AcquisitionOptions = field(default_factory=AcquisitionOptions)
    seed: int = 0


@dataclass(slots=True)
class Instance:
    """How it went for one of them: `ended` is None for one that died. Virtual times."""

    name: str
    directory: Path
    began: float
    ended: float | None = None
    acquired: Acquired | None = None
    error: ArtifactError | None = None
    events: list[Mapping[str, Json]] = field(default_factory=list)


@dataclass(slots=True)
class Fleet:
    """A simulation's result."""

    instances: list[Instance]
    bucket: Bucket
    deaths: Deaths
    compiles: Counter[str] = field(default_factory=Counter)

    @property
    def alive(self) -> list[Instance]:
        return [instance for instance in self.instances if instance.ended is not None]

    def rates(self) -> dict[int, int]:
        """Requests in each second in which there were any."""
        return {second: counts.total() for second, counts in sorted(self.bucket.requests.items())}

    def manifests_written(self) -> dict[str, int]:
        """How often each key's manifest was written."""
        return {key.kind: self.bucket.written[layout.manifest_name(key.kind, key.digest)] for key in KEYS}


def simulate(scenario: Scenario, directory: Path) -> Fleet:
    """Runs a fleet to its end. `directory` gets one directory for each instance, which this removes for the dead."""
    time, random = VirtualTime(), Random(scenario.seed)
    fleet = Fleet([], Bucket(), Deaths(scenario.deaths))
    for number in range(scenario.instances):
        machine = Machine(time, f"i-{number:04}", random.getrandbits(64))
        instance = Instance(machine.name, directory / machine.name, random.uniform(0, scenario.within))
        fleet.instances.append(instance)
        keys = keys_of(number % scenario.endpoints)
        time.spawn(machine, partial(_start, scenario, fleet, machine, instance, keys), instance.began)
    with virtual_threads(time):
        time.run()
    return fleet


def _start(
    scenario: Scenario, fleet: Fleet, machine: Machine, instance: Instance, keys: tuple[ArtifactKey, ...]
) -> None:
    objects = BucketOf(fleet.bucket, machine, fleet.deaths, FaultRate(scenario.faults))
    source = BucketSource(objects, layout.object_name)

    def bring(manifests: Sequence[Manifest], target: Path) -> None:
        restore(manifests, source, target, options=RestoreOptions(threads=2))

    def compile(compilation: Compilation) -> None:
        fleet.compiles["begun"] += 1
        fleet.deaths.step(machine, "compile")
        machine.sleep(scenario.compile / 2)
        fleet.deaths.step(machine, "half compiled")
        machine.sleep(scenario.compile / 2)
        write_artifacts(compilation.directory, machine.name)
        fleet.compiles["finished"] += 1
        fleet.deaths.step(machine, "compiled")
        if scenario.failing:
            raise CompileFailed("simulated", "error: simulated")

    search = Acquisition(
        ArtifactStore(objects),
        keys,
        machine.now() + scenario.deadline,
        scenario.options,
        emit=instance.events.append,
        clock=machine,
        random=machine.random,
    )
    try:
        instance.acquired = acquire(search, bring, compile, instance.directory / "artifacts")
    except ArtifactError as error:
        instance.error = error
    except BaseException:
        shutil.rmtree(instance.directory, ignore_errors=True)
        raise
    instance.ended = machine.time.now


def write_artifacts(directory: Path, compiler: str) -> None:
    """What a compile leaves, small; the graph says who compiled it."""
    (directory / "weights").mkdir()
    (directory / "neuron_config.json").write_text("{}")
    (directory / "model.pt").write_text(f"compiled by {compiler}")
    for rank in range(SHARDS):
        (directory / f"weights/tp{rank}_sharded_checkpoint.safetensors").write_text(f"rank {rank}")
