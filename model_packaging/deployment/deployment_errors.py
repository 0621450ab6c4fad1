"""The errors of deployments and compiles."""

from __future__ import annotations

from collections.abc import Sequence

from handler.errors import ClientError, ServerError
from handler.errors.base import one_line
from model_packaging.deployment.diagnosis import Diagnosis


class ExplainedFailure(ServerError):
    """A container or a job failed. The message has AWS's reason, and the cause and fix if the log shows them.

    :param log: the container's lines, oldest first. Its last lines are shown if they match no known symptom.
    """

    tail, tail_title = 20, "The last lines:"

    def __init__(self, message: str, diagnosis: Diagnosis | None, log: Sequence[str]) -> None:
        super().__init__(message)
        self.diagnosis = diagnosis
        told = [self.tail_title, *(f"  {one_line(line)}" for line in log[-self.tail :])] if log else []
        self.message = "\n".join([self.message, *(diagnosis.lines() if diagnosis else told)])
        self.args = (self.message,)


class DeploymentFailed(ExplainedFailure):
    """The deployment failed."""

    code = "deployment_failed"
    tail, tail_title = 30, "The log's last lines:"


class CompileEnded(ExplainedFailure):
    """The compile ended without artifacts."""

    code = "compile_ended"

    def __init__(self, reason: str, diagnosis: Diagnosis | None, log: Sequence[str]) -> None:
        super().__init__(f"No artifacts were published: {reason}", diagnosis, log)


class StillGoing(ServerError):
    """The wait ended before the operation did. The operation continues."""

    code = "deployment_unfinished"

    def __init__(self, what: str, status: str, seconds: float) -> None:
        super().__init__(
            f"{what} is still {status} after {seconds:.0f} s. Run the same command again to continue waiting."
        )


class NotOurs(ClientError):
    """A resource with this name exists that this command did not create and does not change."""

    code = "not_ours"

    def __init__(self, kind: str, name: str, tag: str) -> None:
        super().__init__(
            f"There is {kind} {name} without the tag {tag}, so this command did not create it. Choose another name, or "
            "remove it."
        )
