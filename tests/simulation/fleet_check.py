"""What must hold of a fleet, however it went."""

from __future__ import annotations

import json
from collections.abc import Iterator

from handler.artifacts.store import object_names as layout
from tests.simulation.fleet import KEYS, Fleet, Instance, Scenario

# After its deadline an instance makes one last round of requests, on a clock that may be 2 % slow. Seconds.
LAST_ROUND = 10.0


def violations(scenario: Scenario, fleet: Fleet) -> Iterator[str]:
    """Each thing that is wrong, in words; none for a fleet that started as it should."""
    for kind, written in fleet.manifests_written().items():
        if written != (0 if scenario.failing else 1):
            yield f"the {kind} manifest was written {written} times"
    dead = sum(death.frozen is None for death in scenario.deaths)
    if len(fleet.alive) != scenario.instances - dead:
        yield f"{len(fleet.alive)} of {scenario.instances} ended, and {dead} should have died"
    if fleet.deaths.died != len(scenario.deaths):
        yield f"only {fleet.deaths.died} of {len(scenario.deaths)} deaths came to pass"
    for instance in fleet.alive:
        yield from _of(scenario, fleet, instance)


def _of(scenario: Scenario, fleet: Fleet, instance: Instance) -> Iterator[str]:
    took = (instance.ended or 0.0) - instance.began
    if took > scenario.deadline * 1.02 + LAST_ROUND + sum(death.frozen or 0.0 for death in scenario.deaths):
        yield f"{instance.name} took {took:.0f} s"
    if scenario.failing:
        if instance.acquired is not None:
            yield f"{instance.name} has artifacts of a compile that failed"
        return
    if instance.acquired is None:
        yield f"{instance.name} has nothing: {instance.error}"
        return
    acquired = instance.acquired
    files = {path.relative_to(acquired.path).as_posix(): path for path in acquired.path.rglob("*") if path.is_file()}
    expected = _published(fleet) if acquired.published else {}
    if acquired.published and set(files) != set(expected):
        yield f"{instance.name} has {sorted(files)}"
    for name, body in expected.items():
        if name in files and files[name].read_bytes() != body:
            yield f"{instance.name}'s {name} is not the one that was published"


def _published(fleet: Fleet) -> dict[str, bytes]:
    """The files of the entries, by path."""
    objects, files = fleet.bucket.objects, {}
    for key in KEYS:
        body, _ = objects[layout.manifest_name(key.kind, key.digest)]
        for file in json.loads(body)["manifest"]["files"]:
            files[file["path"]] = objects[layout.object_name(file["digest"])][0]
    return files
