"""Credentials that only the services of these tests take: for boto3, and as variables."""

from __future__ import annotations

from typing import Final, TypedDict


class AwsKeys(TypedDict):
    """Arguments of `boto3.client`."""

    region_name: str
    aws_access_key_id: str
    aws_secret_access_key: str


REGION: Final = "us-east-1"
KEYS: Final[AwsKeys] = {"region_name": REGION, "aws_access_key_id": "test", "aws_secret_access_key": "test"}
VARIABLES: Final = {"AWS_ACCESS_KEY_ID": "test", "AWS_SECRET_ACCESS_KEY": "test", "AWS_DEFAULT_REGION": REGION}
