"""The error of a failed compile."""

from __future__ import annotations

from handler.errors import ServerError
from model_packaging.deployment.diagnosis import Diagnosis


class CompileEnded(ServerError):
    """The compile ended without artifacts. The message has the reason, and the fix if it is known."""

    code = "compile_ended"

    def __init__(self, reason: str, diagnosis: Diagnosis | None, tail: tuple[str, ...]) -> None:
        self.reason, self.diagnosis, self.tail = reason, diagnosis, tail
        told = [f"Nothing was compiled: {reason}"]
        if diagnosis:
            told += [f"Cause: {diagnosis.cause}.", f"Fix: {diagnosis.fix}", f"Seen: {diagnosis.evidence}"]
        elif tail:
            told += ["The last lines:", *(f"  {line}" for line in tail)]
        super().__init__("\n".join(told))
