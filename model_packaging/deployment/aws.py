"""The AWS clients of a deployment, created when they are first used."""

from __future__ import annotations

from typing import Any


class Aws:
    """Clients of one session. Region, credentials and addresses are boto3's own.

    :param session: a boto3 session; by default a new one, in `region` if given.
    """

    def __init__(self, region: str | None = None, session: Any = None) -> None:
        self._region, self._session = region, session
        self._clients: dict[str, Any] = {}

    def client(self, service: str) -> Any:
        if service not in self._clients:
            import boto3
            from botocore.config import Config

            self._session = self._session or boto3.session.Session(region_name=self._region)
            config = Config(retries={"mode": "standard", "total_max_attempts": 5}, connect_timeout=5)
            self._clients[service] = self._session.client(service, config=config)
        return self._clients[service]

    @property
    def sagemaker(self) -> Any:
        return self.client("sagemaker")

    @property
    def autoscaling(self) -> Any:
        return self.client("application-autoscaling")

    @property
    def cloudwatch(self) -> Any:
        return self.client("cloudwatch")

    @property
    def logs(self) -> Any:
        return self.client("logs")

    @property
    def iam(self) -> Any:
        return self.client("iam")

    @property
    def sts(self) -> Any:
        return self.client("sts")
