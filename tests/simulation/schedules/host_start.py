"""One start of a simulated machine, up to the artifacts that it serves: the product's acquisition and restore."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from random import Random

from handler.artifacts.identity.artifact_key import ArtifactKey
from handler.artifacts.lease.acquisition import Acquisition, AcquisitionOptions
from handler.artifacts.restore.restore import RestoreOptions, restore
from handler.artifacts.store import object_names
from handler.artifacts.store.artifact_store import ArtifactStore
from handler.artifacts.store.manifest import Manifest
from handler.artifacts.store.manifest_signature import SecretSigner
from handler.errors import EndpointError
from handler.json_value import Json
from tests.handler.artifacts.acquire_program import Compilation, acquire
from tests.simulation.fleet_bucket import Bucket, BucketOf, BucketSource
from tests.simulation.fleet_time import Machine
from tests.simulation.schedules import schedule_compiler
from tests.simulation.schedules.schedule import Cause, Schedule
from tests.simulation.schedules.schedule_faults import ScheduledFate, ScheduledFaults
from tests.simulation.schedules.schedule_rules import Rules

SIGNER = SecretSigner(b"a secret of sixteen bytes")
# A start gives up after this time. Seconds.
DEADLINE = 1800.0


@dataclass(slots=True)
class HostStart:
    """Brings the artifacts of `keys` to one machine.

    :ivar compiler: the compile whose artifacts the machine serves, if it was its own.
    """

    schedule: Schedule
    bucket: Bucket
    rules: Rules
    fate: ScheduledFate
    random: Random
    keys: tuple[ArtifactKey, ArtifactKey]
    compiler: str | None = None

    def run(self, process: Machine, directory: Path) -> Path:
        """Returns the directory that the engine loads.

        :raises EndpointError: the start has failed.
        """
        objects = BucketOf(self.bucket, process, self.fate, ScheduledFaults(self.schedule))
        source = BucketSource(objects, object_names.object_name)
        compiled = directory
        self._say(process, f"start with {self.keys[0].digest[:2]}, {self.keys[1].digest[:2]}")

        def bring(manifests: Sequence[Manifest], target: Path) -> None:
            self.fate.step(process, "restore")
            restore(manifests, source, target, options=RestoreOptions(threads=1 + self.schedule.seed % 2))
            self.fate.step(process, "restored")

        def compile(compilation: Compilation) -> None:
            nonlocal compiled
            self.compiler, compiled = None, compilation.directory
            name = f"{process.name}/{len(self.rules.finished) + len(self.rules.failures)}"
            self.rules.compile_begins(process, compilation)
            self._compile(process, compilation, name)
            self.compiler = name
            self.fate.step(process, "compiled")

        def heard(event: Mapping[str, Json]) -> None:
            if self.fate.say is not None:
                self.fate.say(process, json.dumps(event))

        signer = SIGNER if self.schedule.signed else None
        search = Acquisition(
            ArtifactStore(objects, signer),
            self.keys,
            process.now() + DEADLINE,
            AcquisitionOptions(
                lease=self.schedule.lease, poll=self.schedule.poll, machine={"host": process.name}, boot=process.name
            ),
            emit=heard,
            clock=process,
            random=process.random,
        )
        try:
            return acquire(search, bring, compile, directory / self.keys[0].digest[:8]).path
        except EndpointError:
            if self.compiler is None:
                raise
            return compiled  # as `engine_by_artifacts`: the engine that compiled serves

    def _compile(self, process: Machine, compilation: Compilation, name: str) -> None:
        time, schedule, causes = process.time, self.schedule, self.schedule.causes
        cause = Cause.DONE
        if time.now < schedule.clear and any(causes.values()):
            cause = self.random.choices(list(causes), list(causes.values()))[0]
        files = schedule_compiler.artifacts(self.keys, name)
        self.fate.step(process, f"compile {name}")
        process.sleep(self.random.uniform(*schedule.compile) / 2)
        schedule_compiler.write(compilation.directory, dict(list(files.items())[:1]))
        self.fate.step(process, "half compiled")
        process.sleep(self.random.uniform(*schedule.compile) / 2)
        if time.now >= schedule.clear:
            cause = Cause.DONE
        self._say(process, f"compile: {cause.value}")
        self.rules.compile_ends(process, compilation, cause, name)
        if cause is not Cause.DONE:
            schedule_compiler.fail(cause)
        schedule_compiler.write(compilation.directory, files)

    def _say(self, process: Machine, text: str) -> None:
        if self.fate.say is not None:
            self.fate.say(process, text)
