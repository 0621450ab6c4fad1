"""Clients for S3: their retries, and a role that may list only some prefixes, to which S3 denies a missing object."""

from __future__ import annotations

from typing import Any

import boto3
import pytest
from botocore.exceptions import (
    ClientError,
    NoCredentialsError,
    ProfileNotFound,
    TokenRetrievalError,
    UnauthorizedSSOTokenError,
)
from botocore.stub import Stubber

from handler.artifacts.lease.lease import MARGIN, RENEWALS, SECONDS
from handler.config.loading import file_reader
from handler.storage import s3_objects
from handler.storage.retry import OBJECTS, SMALL_FILES, WHOLE_OBJECTS, Retry
from handler.storage.s3_client import make_client, tell_missing_objects
from handler.storage.s3_errors import translated
from handler.storage.s3_objects import S3Objects
from handler.storage.storage_errors import AccessDenied, CredentialsMissing, CredentialsRefused, NotFound

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


def test_a_settings_file_that_is_not_listed_is_missing(client: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(file_reader, "make_client", lambda retry: client)
    with Stubber(client) as stub:
        stub.add_client_error("get_object", "AccessDenied", http_status_code=403)
        stub.add_response("list_objects_v2", {}, {"Bucket": "bucket", "Prefix": KEY, "MaxKeys": 1})
        assert file_reader.fetch(f"s3://bucket/{KEY}") is None


@pytest.mark.parametrize("retry", [OBJECTS, SMALL_FILES, WHOLE_OBJECTS])
def test_a_client_tries_as_often_and_as_long_as_the_table_says(retry: Retry, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AWS_DEFAULT_REGION", "us-east-1")
    config = vars(make_client(retry).meta.config)
    assert config["retries"] == {"mode": "standard", "total_max_attempts": retry.attempts}
    assert (config["connect_timeout"], config["read_timeout"]) == (retry.connect, retry.wait)


def test_a_renewal_without_a_reply_is_sent_again_before_its_lease_is_lost(
    aws: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[Retry] = []

    def made(retry: Retry) -> Any:
        asked.append(retry)
        raise NoCredentialsError

    monkeypatch.setattr(s3_objects, "make_client", made)
    objects = S3Objects("bucket", "store")
    with pytest.raises(CredentialsMissing):
        objects.put("leases/a", b"", if_match="1")
    with pytest.raises(CredentialsMissing):
        objects.get("leases/a")
    assert set(asked) == {WHOLE_OBJECTS}
    held = SECONDS * (1 - MARGIN)
    assert SECONDS / RENEWALS + 3 * WHOLE_OBJECTS.wait < held


@pytest.mark.parametrize(
    "problem",
    [
        UnauthorizedSSOTokenError(),
        TokenRetrievalError(provider="sso", error_msg="Token has expired and refresh failed"),
        ProfileNotFound(profile="modle"),
        RuntimeError("Credentials were refreshed, but the refreshed credentials are still expired."),
        ClientError(
            {"Error": {"Code": "AccessDenied"}, "ResponseMetadata": {"HTTPStatusCode": 403}},  # type: ignore[typeddict-item]  # the rest is not read
            "AssumeRoleWithWebIdentity",
        ),
        ClientError(
            {"Error": {"Code": "ExpiredTokenException"}, "ResponseMetadata": {"HTTPStatusCode": 400}},  # type: ignore[typeddict-item]  # the rest is not read
            "AssumeRole",
        ),
    ],
)
def test_credentials_that_cannot_be_had_are_no_outage(problem: Exception) -> None:
    """A start would wait for the end of an outage."""
    with pytest.raises(CredentialsRefused, match=r"s3://b/k .*credentials"), translated("s3://b/k", "s3:GetObject"):
        raise problem
