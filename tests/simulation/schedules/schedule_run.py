"""Runs one schedule to its end. The machines' starts and their requests are the product's own code.

Simulated are the clocks, S3, the compiler and the processes: a machine whose container has ended starts it again.
"""

from __future__ import annotations

import json
import socket
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from random import Random

from handler.artifacts.identity.artifact_key import ArtifactKey
from handler.artifacts.lease.compile_errors import CompileFailed, FailedBefore
from handler.artifacts.lease.negative_entries import SECONDS, name_of
from handler.errors import EndpointError
from tests.simulation.fleet_bucket import Bucket, BucketOf
from tests.simulation.fleet_time import EPOCH, Machine, VirtualTime
from tests.simulation.schedules.host_start import DEADLINE, HostStart
from tests.simulation.schedules.schedule import Blow, Poison, Schedule, Stroke
from tests.simulation.schedules.schedule_faults import ScheduledFate, ScheduledFaults
from tests.simulation.schedules.schedule_requests import Container, ServingProcess, ended
from tests.simulation.schedules.schedule_rules import SKEW, Rules, Violation
from tests.simulation.virtual_threads import virtual_threads

# Seconds: between two starts of a container that fails, and until all have to serve once nothing goes wrong any
# more: a record of a failed compile counts for SECONDS, and then somebody has to compile.
BACKOFF = (10.0, 900.0)
BOUND = SECONDS + SKEW + BACKOFF[1] + DEADLINE
# Nothing takes so many events, unless it does not end.
MOST_EVENTS = 100_000


@dataclass(slots=True, eq=False)
class Host:
    """A machine and what runs on it now."""

    directory: Path
    process: Machine
    version: int
    failures: int = 0
    container: Container | None = None
    serving: ServingProcess | None = None
    version_served: int = -1


@dataclass(slots=True)
class Run:
    """A schedule while it runs. `trace`: takes a line for each event, if it is given."""

    schedule: Schedule
    directory: Path
    trace: list[str] | None = None
    time: VirtualTime = field(default_factory=VirtualTime)
    bucket: Bucket = field(default_factory=Bucket)
    versions: list[tuple[ArtifactKey, ArtifactKey]] = field(default_factory=lambda: [keys(0, 0)])
    hosts: dict[str, Host] = field(default_factory=dict)
    clients: list[socket.socket] = field(default_factory=list)
    processes: list[Machine] = field(default_factory=list)
    random: Random = field(init=False)
    rules: Rules = field(init=False)
    fate: ScheduledFate = field(init=False)
    calm: bool = field(init=False)

    def __post_init__(self) -> None:
        self.random = Random(self.schedule.seed + 1)
        self.rules = Rules(self.bucket, self.schedule.signed)
        self.fate = ScheduledFate(self.schedule, self._strike_machine, None if self.trace is None else self._say)
        self.bucket.on_write = self.rules.written
        freezes = any(stroke.blow is Blow.FREEZE for stroke in self.schedule.strokes)
        self.calm = not freezes and not self.schedule.outages

    def run(self) -> None:
        """:raises Violation: a rule does not hold."""
        operator = Machine(self.time, "operator", self.schedule.seed)
        for at in self.schedule.starts:
            self._new_host(at)
        for stroke in self.schedule.strokes:
            if stroke.step is None:
                self.time.spawn(operator, partial(self._strike_any, stroke), stroke.at)
        for at, poison in self.schedule.poisons:
            self.time.spawn(operator, partial(self._poison, poison), at)
        for at, weights in self.schedule.updates:
            self.time.spawn(operator, partial(self._update, operator, weights), at)
        for at, hostile in self.schedule.visits:
            self.time.spawn(operator, partial(self._visit, hostile), at)
        with virtual_threads(self.time):
            try:
                self.time.run(self._ended)
                self._check_end()
            finally:
                for process in self.processes:
                    process.kill()
                self.time.run()
                for client in self.clients:
                    client.close()
                for host in self.hosts.values():
                    self._end_container(host)

    def _ended(self) -> bool:
        now, clear = self.time.now, self.schedule.clear
        if now <= clear:
            return False
        if now > clear + BOUND or self.time.events > MOST_EVENTS:
            return True
        return all(self._serves(host) for host in self.hosts.values())

    def _serves(self, host: Host) -> bool:
        return host.serving is not None and not host.serving.busy and host.version_served == len(self.versions) - 1

    def _check_end(self) -> None:
        waiting = [name for name, host in self.hosts.items() if not self._serves(host)]
        if waiting:
            raise Violation(f"{waiting} do not serve {self.time.now - self.schedule.clear:.0f} s after the last fault")
        if lost := sum(not ended(client) for client in self.clients):
            raise Violation(f"{lost} requests have neither a reply nor an error")

    def _new_host(self, at: float) -> None:
        machine = Machine(self.time, f"i-{len(self.hosts)}-{len(self.processes)}", self.random.getrandbits(64))
        host = Host(self.directory / machine.name, machine, len(self.versions) - 1)
        self.hosts[machine.name] = host
        self._boot(host, at)

    def _boot(self, host: Host, at: float) -> None:
        host.serving = None
        host.process.kill()
        host.process = host.process.successor()
        self.processes.append(host.process)
        self.time.spawn(host.process, partial(self._start, host, host.process), at)

    def _start(self, host: Host, process: Machine) -> None:
        version, began = host.version, self.time.now
        start = HostStart(self.schedule, self.bucket, self.rules, self.fate, self.random, self.versions[version])
        try:
            directory = start.run(process, host.directory)
        except EndpointError as error:
            self._failed(host, process, error, began)
            return
        self.rules.serves(process.name, self.versions[version], directory, start.compiler)
        self.fate.step(process, "serve")
        host.failures, host.version_served = 0, version
        host.container = host.container or Container()
        host.serving = ServingProcess(host.container, process, partial(self._engine_died, host))

    def _failed(self, host: Host, process: Machine, error: EndpointError, began: float) -> None:
        self._say(process, f"{type(error).__name__}: {error.message}")
        key = self.versions[host.version][0].digest
        if isinstance(error, FailedBefore):
            self.rules.refused(process.name, key, self.time.now)
        elif isinstance(error, CompileFailed) and error.crashed and self.calm:
            self.rules.tried_again(process.name, key, began)
        delay = min(BACKOFF[1], BACKOFF[0] * 4**host.failures)
        host.failures += 1
        self._end_container(host)
        self._boot(host, self.time.now + delay)

    def _engine_died(self, host: Host) -> None:
        self._say(host.process, "the engine dies")
        self._boot(host, self.time.now + 2)

    def _end_container(self, host: Host) -> None:
        if host.serving is not None:
            host.serving.killed()
        if host.container is not None:
            host.container.close()
        host.container = None

    def _strike_any(self, stroke: Stroke) -> None:
        self._strike(self.random.choice(list(self.hosts.values())), stroke)

    def _strike_machine(self, machine: Machine, stroke: Stroke) -> None:
        host = self.hosts.get(machine.name)
        if host is not None and host.process is machine:
            self._strike(host, stroke)
            machine.check()

    def _strike(self, host: Host, stroke: Stroke) -> None:
        self._say(host.process, stroke.blow.value)
        now, process = self.time.now, host.process
        if stroke.blow is Blow.FREEZE:
            process.freeze(min(self.random.uniform(5, 200), self.schedule.clear - now))
        elif stroke.blow is Blow.ENGINE:
            if host.serving is not None:
                self.time.spawn(process, host.serving.engine_dies, now)
        elif stroke.blow is Blow.PROCESS:
            self._end_container(host)
            self._boot(host, now + self.random.uniform(1, 10))
        else:
            self._end_container(host)
            process.kill()
            del self.hosts[process.name]
            self._new_host(now + self.random.uniform(10, 60))

    def _update(self, operator: Machine, weights: bool) -> None:
        number = len(self.versions)
        self.versions.append(keys(number, number if weights else 0))
        for name in list(self.hosts):
            if (host := self.hosts.get(name)) is not None and host.version < number:
                host.version, host.failures = number, 0
                self._end_container(host)
                self._boot(host, self.time.now + 1)
            operator.sleep(self.random.uniform(0, 20))

    def _poison(self, poison: Poison) -> None:
        if poison is Poison.GARBAGE:
            body = b"[" * 1000
        else:
            failed = EPOCH + self.time.now + (1e9 if poison is Poison.FUTURE else 0)
            crashed = ["one", "two"] if poison is Poison.CRASHES else []
            values = {"reason": "poison", "log": "", "settings": "", "machine": "", "failed": failed, "seconds": 1e12}
            key = self.versions[-1][0].digest
            body = json.dumps({**values, "key": key, "crashed_on": crashed}).encode()
            self.rules.poisoned = self.time.now
        objects = BucketOf(self.bucket, Machine(self.time, "poisoner", 0), self.fate, ScheduledFaults(self.schedule))
        objects.store(name_of(self.versions[-1][0]), body)

    def _visit(self, hostile: bool) -> None:
        serving = [host for host in self.hosts.values() if host.serving is not None]
        if serving:
            host = self.random.choice(serving)
            self.time.spawn(host.process, partial(self._connect, host, host.process, hostile), self.time.now)

    def _connect(self, host: Host, process: Machine, hostile: bool) -> None:
        if host.serving is not None and host.process is process:
            self._say(process, "a request")
            self.clients.append(host.serving.connect(hostile=hostile))

    def _say(self, machine: Machine, text: str) -> None:
        if self.trace is not None:
            self.trace.append(f"{self.time.now:10.3f} {machine.name:10} {text}")


def keys(graph: int, weights: int) -> tuple[ArtifactKey, ArtifactKey]:
    """The keys of a version of the endpoint."""
    return (
        ArtifactKey("graph", f"{graph:02x}" + "a" * 62, {"model": "simulated", "graph": graph}),
        ArtifactKey("weights", f"{weights:02x}" + "b" * 62, {"model": "simulated", "weights": weights}),
    )
