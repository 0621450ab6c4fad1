"""The errors of a deployment."""

from __future__ import annotations

from handler.errors import ClientError, ServerError
from model_packaging.deployment.diagnosis import Diagnosis


class DeploymentFailed(ServerError):
    """The deployment failed. The message has SageMaker's reason, and the cause and fix if the logs show them."""

    code = "deployment_failed"

    def __init__(self, what: str, reason: str, diagnosis: Diagnosis | None, tail: tuple[str, ...]) -> None:
        self.what, self.reason, self.diagnosis, self.tail = what, reason, diagnosis, tail
        lines = [f"{what} failed: {reason or 'SageMaker gave no reason'}"]
        if diagnosis:
            lines += [f"Cause: {diagnosis.cause}.", f"Fix: {diagnosis.fix}", f"Seen: {diagnosis.evidence}"]
        elif tail:
            lines += ["The log's last lines:", *(f"  {line}" for line in tail)]
        super().__init__("\n".join(lines))


class StillGoing(ServerError):
    """The wait ended before the operation did. The operation continues."""

    code = "deployment_unfinished"

    def __init__(self, what: str, status: str, seconds: float) -> None:
        self.what, self.state = what, status
        super().__init__(
            f"{what} is still {status} after {seconds:.0f} s. Run the same command again to continue waiting."
        )


class NotOurs(ClientError):
    """A resource with this name exists that this command did not create and does not change."""

    code = "not_ours"

    def __init__(self, kind: str, name: str, tag: str) -> None:
        self.what, self.name = kind, name
        super().__init__(
            f"There is {kind} {name} without the tag {tag}, so this command did not create it. Choose another name, or "
            "remove it."
        )
