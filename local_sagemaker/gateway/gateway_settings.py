"""The settings of a gateway."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class RuntimeLimits:
    """SageMaker's own limits. Lower them to see a time-out without the wait.

    The stream's time and the body's size are third parties' figures. The API's model has 6,291,456 bytes.
    """

    regular_seconds: float = 60.0
    stream_seconds: float = 480.0
    connect_seconds: float = 2.0
    body_bytes: int = 25 * 1024 * 1024


@dataclass(frozen=True, slots=True)
class Endpoint:
    """The endpoint that a gateway serves, with the names that SageMaker's messages use."""

    name: str
    variant: str = "AllTraffic"
    region: str = "us-east-1"
    account: str = "123456789012"

    @property
    def log_group(self) -> str:
        return f"/aws/sagemaker/Endpoints/{self.name}"

    @property
    def log_stream_arn(self) -> str:
        return f"arn:aws:logs:{self.region}:{self.account}:log-group:{self.log_group}"

    @property
    def console_url(self) -> str:
        console = f"https://{self.region}.console.aws.amazon.com/cloudwatch/home?region={self.region}"
        return f"{console}#logEventViewer:group={self.log_group}"
