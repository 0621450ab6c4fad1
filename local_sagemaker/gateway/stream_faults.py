"""The errors of a stream that has begun. The status is already sent, so the last frame reports the failure."""

from __future__ import annotations

from typing import ClassVar

from local_sagemaker.gateway import event_stream as eventstream


class StreamFault(Exception):
    """An error frame. boto3 keeps only the ``Message``, so it contains everything that a caller needs."""

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
        super().__init__("The gateway failed. Its log has the reason.")


class PlannedFault(StreamFault):
    """An injected error."""

    def __init__(self, reason: str) -> None:
        super().__init__(reason)


class PlannedModelStreamError(PlannedFault):
    kind = "ModelStreamError"

    def fields(self) -> dict[str, object]:
        return {"Message": str(self), "ErrorCode": "StreamBroken"}


class PlannedInternalStreamFailure(PlannedFault):
    kind = "InternalStreamFailure"
