"""Checks an update's DeploymentConfig against the rules of its documentation that the service model does not have.

Source: API reference of SageMaker, "TrafficRoutingConfig", "RollingUpdatePolicy", "BlueGreenUpdatePolicy",
"InferenceComponentRollingUpdatePolicy".
"""

from __future__ import annotations

from local_sagemaker.control.control_errors import ValidationException
from local_sagemaker.control.registry import JsonDocument
from local_sagemaker.hosting.alarms import Alarms
from local_sagemaker.hosting.rollout import alarm_names

# In per cent of a variant's instances.
CANARY = (0.0, 50.0)
LINEAR = (10.0, 50.0)
ROLLING = (5.0, 50.0)
ROLLBACK = (0.0, 100.0)


def check_deployment(config: JsonDocument | None, counts: list[int], alarms: Alarms) -> None:
    """Checks a DeploymentConfig.

    :param counts: the instances of each variant, or the copies of the component.
    :raises ValidationException: there are two policies, a step size is missing or out of bounds, the time limit is
        shorter than the waits, or an alarm does not exist.
    """
    if not config:
        return
    blue_green, rolling = config.get("BlueGreenUpdatePolicy"), config.get("RollingUpdatePolicy")
    if blue_green and rolling:
        raise ValidationException("Only one of BlueGreenUpdatePolicy and RollingUpdatePolicy can be given.")
    if blue_green:
        _check_blue_green(blue_green, counts)
    if rolling:
        _check_size("MaximumBatchSize", rolling["MaximumBatchSize"], ROLLING, counts)
        if size := rolling.get("RollbackMaximumBatchSize"):
            _check_size("RollbackMaximumBatchSize", size, ROLLBACK, counts)
        _check_limit(rolling, rolling["WaitIntervalInSeconds"])
    if (names := alarm_names(config)) and (missing := alarms.missing(names)):
        raise ValidationException(f"Could not find the CloudWatch alarm {', '.join(missing)}.")


def _check_blue_green(policy: JsonDocument, counts: list[int]) -> None:
    routing = policy["TrafficRoutingConfiguration"]
    for kind, member, bounds in (("CANARY", "CanarySize", CANARY), ("LINEAR", "LinearStepSize", LINEAR)):
        if routing["Type"] == kind:
            if member not in routing:
                raise ValidationException(f"{member} must be given for the type {kind}.")
            _check_size(member, routing[member], bounds, counts)
        elif member in routing:
            raise ValidationException(f"{member} is of the type {kind}, not of {routing['Type']}.")
    _check_limit(policy, routing["WaitIntervalInSeconds"] + policy.get("TerminationWaitInSeconds", 0))


def _check_size(member: str, size: JsonDocument, bounds: tuple[float, float], counts: list[int]) -> None:
    for count in counts:
        percent = size["Value"] if size["Type"] == "CAPACITY_PERCENT" else 100 * size["Value"] / count
        if not bounds[0] <= percent <= bounds[1]:
            raise ValidationException(
                f"{member} must be {bounds[0]:g}% to {bounds[1]:g}% of the total count, which is {count}: "
                f"{size['Value']} ({size['Type']}) is {percent:g}%."
            )


def _check_limit(policy: JsonDocument, waits: int) -> None:
    limit = policy.get("MaximumExecutionTimeoutInSeconds")
    if limit is not None and limit <= waits:
        raise ValidationException(
            f"MaximumExecutionTimeoutInSeconds ({limit}) must be larger than the time that is waited in all ({waits})."
        )
