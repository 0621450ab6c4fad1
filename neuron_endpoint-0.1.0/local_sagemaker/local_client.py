"""Clients of the services that moto serves on this machine: S3, SNS, CloudWatch."""

from __future__ import annotations

from typing import Any

import boto3
from botocore.config import Config


def local_client(service: str, endpoint_url: str, region: str, **options: Any) -> Any:
    """Returns a boto3 client. Each has its own session, so threads can create clients at the same time.

    :param options: the options of botocore's Config.
    """
    session = boto3.Session("local", "local", region_name=region)
    return session.client(service, endpoint_url=endpoint_url, config=Config(**options))  # type: ignore[call-overload]
