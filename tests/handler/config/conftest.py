"""Settings that are read from S3."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest


@pytest.fixture
def put_s3(s3: Any) -> Callable[[str, bytes], str]:
    """Puts an object into the bucket `settings`, and gives its URI; boto3 finds the server by itself."""
    s3.create_bucket(Bucket="settings")

    def put(key: str, body: bytes) -> str:
        s3.put_object(Bucket="settings", Key=key, Body=body)
        return f"s3://settings/{key}"

    return put
