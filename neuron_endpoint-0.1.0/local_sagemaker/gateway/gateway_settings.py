"""The settings of a gateway."""

from __future__ import annotations

from dataclasses import dataclass
from urllib.parse import urlsplit


@dataclass(frozen=True, slots=True)
class RuntimeLimits:
    """SageMaker's own limits. Lower them to see a time-out without the wait.

    The stream's time and the body's size are third parties' figures. The API's model has 6,291,456 bytes.
    """

    regular_seconds: float = 60.0
    stream_seconds: float = 480.0
    connect_seconds: float = 2.0
    body_bytes: int = 25 * 1024 * 1024

    def __post_init__(self) -> None:
        for name in ("regular_seconds", "stream_seconds", "connect_seconds", "body_bytes"):
            if getattr(self, name) <= 0:
                raise ValueError(f"{name} must be above 0, not {getattr(self, name)}")


@dataclass(frozen=True, slots=True)
class ContainerAddress:
    """The address of the container's process."""

    host: str
    port: int

    @classmethod
    def parse(cls, url: str) -> ContainerAddress:
        """Parses ``http://HOST:PORT``. SageMaker uses plain HTTP and fixed paths, so a URL has nothing else."""
        parts = urlsplit(url)
        if parts.scheme != "http" or not parts.hostname or parts.path.strip("/") or parts.query:
            raise ValueError(f"{url!r} is not of the form http://HOST:PORT")
        return cls(parts.hostname, parts.port or 80)

    def __str__(self) -> str:
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"{host}:{self.port}"


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
