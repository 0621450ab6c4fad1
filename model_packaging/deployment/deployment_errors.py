"""What ends a deployment."""

from __future__ import annotations

from handler.errors import ClientError, ServerError
from model_packaging.deployment.diagnosis import Diagnosis


class DeploymentFailed(ServerError):
    """SageMaker gave up: with what it said, and why, as far as the logs tell."""

    code = "deployment_failed"

    def __init__(self, what: str, reason: str, diagnosis: Diagnosis | None, tail: tuple[str, ...]) -> None:
        self.what, self.reason, self.diagnosis, self.tail = what, reason, diagnosis, tail
        told = [f"{what} failed: {reason or 'SageMaker gave no reason'}"]
        if diagnosis:
            told += [f"Cause: {diagnosis.cause}.", f"Fix: {diagnosis.fix}", f"Seen: {diagnosis.evidence}"]
        elif tail:
            told += ["The log's last lines:", *(f"  {line}" for line in tail)]
        super().__init__("\n".join(told))


class StillGoing(ServerError):
    """The wait was given up; what was begun goes on."""

    code = "deployment_unfinished"

    def __init__(self, what: str, status: str, seconds: float) -> None:
        self.what, self.state = what, status
        super().__init__(f"{what} is still {status} after {seconds:.0f} s. Run the same command again to wait on.")


class NotOurs(ClientError):
    """Something of that name is there that this command did not make, and so will not touch."""

    code = "not_ours"

    def __init__(self, kind: str, name: str, tag: str) -> None:
        self.what, self.name = kind, name
        super().__init__(
            f"There is {kind} {name} without the tag {tag}: something else made it. Choose another name, or remove it."
        )
