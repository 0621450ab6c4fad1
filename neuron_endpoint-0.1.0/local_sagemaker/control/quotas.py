"""Service quotas: how many resources of a kind an account may have."""

from __future__ import annotations

from dataclasses import dataclass, field

from local_sagemaker.control.control_errors import ResourceLimitExceeded
from local_sagemaker.control.registry import COMPONENT, CONFIG, ENDPOINT, MODEL, TRANSFORM, JsonDocument, Registry

INSTANCES = "instances"
NAMES = (MODEL, CONFIG, ENDPOINT, COMPONENT, TRANSFORM, INSTANCES)
LIVE = ("Creating", "InService", "Updating", "SystemUpdating", "RollingBack")


@dataclass(frozen=True, slots=True)
class Quotas:
    """The quotas of the account.

    :ivar limits: by kind of resource. ``instances`` is the limit of each instance type over all endpoints.
    """

    limits: dict[str, int] = field(default_factory=dict)

    @classmethod
    def parse(cls, entries: tuple[str, ...]) -> Quotas:
        """Parses ``NAME=NUMBER`` entries.

        :raises ValueError: an entry has another form, or an unknown name.
        """
        limits = {}
        for entry in entries:
            name, _, number = entry.partition("=")
            if name not in NAMES or not (number.isascii() and number.isdigit()):
                raise ValueError(f"{entry!r} is not of the form NAME=NUMBER with one of {', '.join(NAMES)}")
            limits[name] = int(number)
        return cls(limits)

    def check_new(self, registry: Registry, kind: str) -> None:
        """Checks that one more resource of a kind is allowed.

        :raises ResourceLimitExceeded: it is not.
        """
        have = len(registry.of(kind))
        if have + 1 > self.limits.get(kind, have + 1):
            raise _exceeded(f"{kind}s", self.limits[kind], have, 1, "Resources")

    def check_instances(self, registry: Registry, wanted: JsonDocument, instead_of: str | None = None) -> None:
        """Checks that more instances are allowed.

        :param wanted: instances by type.
        :param instead_of: the endpoint that they belong to. Its current instances do not count.
        :raises ResourceLimitExceeded: the quota of an instance type is exceeded.
        """
        if INSTANCES not in self.limits:
            return
        limit = self.limits[INSTANCES]
        for kind, count in wanted.items():
            have = sum(
                instances_of(endpoint["Plan"]).get(kind, 0)
                for name, endpoint in registry.of(ENDPOINT).items()
                if name != instead_of and endpoint["EndpointStatus"] in LIVE
            )
            if have + count > limit:
                raise _exceeded(f"{kind} for endpoint usage", limit, have, count, "Instances")


def instances_of(plan: JsonDocument) -> dict[str, int]:
    counts: dict[str, int] = {}
    for variant in plan["Variants"]:
        counts[variant["InstanceType"]] = counts.get(variant["InstanceType"], 0) + variant["Count"]
    return counts


def _exceeded(what: str, limit: int, have: int, delta: int, unit: str) -> ResourceLimitExceeded:
    return ResourceLimitExceeded(
        f"The account-level service limit '{what}' is {limit} {unit}, with current utilization of {have} {unit} and a "
        f"request delta of {delta} {unit}. Please use AWS Service Quotas to request an increase for this quota."
    )
