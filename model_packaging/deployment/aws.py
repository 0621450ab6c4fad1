"""The AWS clients of a deployment, created when they are first used."""

from __future__ import annotations

from typing import Any

from handler.storage.retry import SERVICES

# The Price List has three addresses for all regions.
PRICES = {"pricing": "us-east-1"}


def _client(service: str) -> Any:
    return property(lambda aws: aws.client(service))


class Aws:
    """Clients of one session. Region, credentials and addresses are boto3's own.

    :param session: a boto3 session; by default a new one, in `region` if given.
    """

    sagemaker = _client("sagemaker")
    autoscaling = _client("application-autoscaling")
    cloudwatch = _client("cloudwatch")
    logs = _client("logs")
    iam = _client("iam")
    pricing = _client("pricing")
    sts = _client("sts")

    def __init__(self, region: str | None = None, session: Any = None) -> None:
        self._region, self._session = region, session
        self._clients: dict[str, Any] = {}

    def client(self, service: str) -> Any:
        if service not in self._clients:
            import boto3

            self._session = self._session or boto3.session.Session(region_name=self._region)
            self._clients[service] = self._session.client(service, PRICES.get(service), config=SERVICES.config())
        return self._clients[service]
