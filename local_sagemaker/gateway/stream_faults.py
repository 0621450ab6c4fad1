"""What ends a stream that has begun: its status is sent, so only a last frame can still say it failed."""

from __future__ import annotations

from typing import ClassVar

from local_sagemaker.gateway import event_stream as eventstream


class StreamFault(Exception):
    """boto3 keeps only the ``Message``, so whatever a caller must know stands there."""

    kind: ClassVar[str]

    def fields(self) -> dict[str, object]:
        return {"Message": str(self)}

    def frame(self) -> bytes:
        return eventstream.exception(self.kind, self.fields())


class ModelStreamError(StreamFault):
    kind = "ModelStreamError"
    error_code: ClassVar[str]

    def __init__(self, reason: str) -> None:
        super().__init__(f"{self.error_code}: {reason}")

    def fields(self) -> dict[str, object]:
        return {"Message": str(self), "ErrorCode": self.error_code}


class StreamBroken(ModelStreamError):
    error_code = "StreamBroken"


class StreamTimedOut(ModelStreamError):
    error_code = "ModelInvocationTimeExceeded"

    def __init__(self, seconds: float) -> None:
        super().__init__(f"the model did not finish its response within {seconds:g} seconds")


class InternalStreamFailure(StreamFault):
    kind = "InternalStreamFailure"

    def __init__(self) -> None:
        super().__init__("The gateway failed; its own log has the reason.")


class PlannedFault(StreamFault):
    """On request."""

    def __init__(self, reason: str) -> None:
        super().__init__(reason)


class PlannedModelStreamError(PlannedFault):
    kind = "ModelStreamError"

    def fields(self) -> dict[str, object]:
        return {"Message": str(self), "ErrorCode": "StreamBroken"}


class PlannedInternalStreamFailure(PlannedFault):
    kind = "InternalStreamFailure"
