"""A role that may list only some prefixes: S3 denies a read of a missing object, and this code asks what is there."""

from __future__ import annotations

from typing import Any

import boto3
import pytest
from botocore.stub import Stubber

from handler.storage.s3_client import tell_missing_objects
from handler.storage.s3_objects import S3Objects
from handler.storage.storage_errors import AccessDenied, NotFound

KEY = "store/entry/manifest.json"


@pytest.fixture
def client() -> Any:
    made = boto3.client("s3", region_name="us-east-1", aws_access_key_id="a", aws_secret_access_key="b")
    return tell_missing_objects(made)


@pytest.mark.parametrize(
    ("listed", "error"),
    [({}, NotFound), ({"Contents": [{"Key": f"{KEY}.old"}]}, NotFound), ({"Contents": [{"Key": KEY}]}, AccessDenied)],
)
@pytest.mark.parametrize("read", ["get", "head"])
def test_what_is_not_listed_is_missing_and_what_is_listed_is_denied(
    client: Any, read: str, listed: dict[str, Any], error: type[Exception]
) -> None:
    with Stubber(client) as stub:
        code = "AccessDenied" if read == "get" else "403"
        stub.add_client_error(f"{read}_object", code, http_status_code=403)
        stub.add_response("list_objects_v2", listed, {"Bucket": "bucket", "Prefix": KEY, "MaxKeys": 1})
        with pytest.raises(error):
            getattr(S3Objects("bucket", "store", client), read)("entry/manifest.json")
        stub.assert_no_pending_responses()


def test_where_the_role_may_not_list_either_the_read_stays_denied(client: Any) -> None:
    with Stubber(client) as stub:
        stub.add_client_error("get_object", "AccessDenied", http_status_code=403)
        stub.add_client_error("list_objects_v2", "AccessDenied", http_status_code=403)
        with pytest.raises(AccessDenied, match="s3:ListBucket"):
            S3Objects("bucket", "store", client).get("entry/manifest.json")
