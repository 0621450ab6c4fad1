"""Translates botocore's errors into `storage_errors`. Each names the bucket, the key and the missing permission."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from handler.storage import storage_errors
from handler.storage.s3_client import NEAR_BUCKET

if TYPE_CHECKING:
    from botocore.exceptions import ClientError

# Without s3:ListBucket, S3 answers 403 instead of 404 for a missing object (API reference of GetObject).
LOOKS_DENIED = "{} (and s3:ListBucket on the bucket: without it S3 reports a missing object as access denied)"
CREDENTIAL_CODES = {
    "InvalidAccessKeyId",
    "SignatureDoesNotMatch",
    "ExpiredToken",
    "ExpiredTokenException",
    "InvalidToken",
    "TokenRefreshRequired",
    "RequestTimeTooSkewed",
    "RequestExpired",
}
# A RuntimeError of botocore (credentials.py): the role's new credentials are old, or this machine's clock is ahead.
EXPIRED = "refreshed credentials are still expired"
REGION_CODES = {
    "PermanentRedirect",
    "AuthorizationHeaderMalformed",
    "IllegalLocationConstraintException",
}


@contextmanager
def translated(where: str, permission: str) -> Iterator[None]:
    """Raises errors of botocore inside the block as errors of `handler.storage.storage_errors`.

    :param where: the URI of the object.
    :param permission: the permission that the call needs, for example `s3:GetObject`.
    """
    from botocore import exceptions
    from urllib3.exceptions import HTTPError

    try:
        yield
    except exceptions.ClientError as error:
        raise _from_reply(error, where, permission) from error
    except (exceptions.NoCredentialsError, exceptions.PartialCredentialsError) as error:
        raise storage_errors.CredentialsMissing(where, str(error)) from error
    except (exceptions.SSOError, exceptions.TokenRetrievalError, exceptions.ProfileNotFound) as error:
        raise storage_errors.CredentialsRefused(where, str(error)) from error
    except exceptions.ParamValidationError as error:
        raise storage_errors.BucketMissing(where, str(error).replace("\n", " ")) from error
    except (exceptions.BotoCoreError, HTTPError) as error:
        raise storage_errors.StoreUnavailable(where, f"{type(error).__name__}: {error}") from error
    except RuntimeError as error:
        if EXPIRED not in str(error):
            raise
        raise storage_errors.CredentialsRefused(where, str(error)) from error


def _from_reply(error: ClientError, where: str, permission: str) -> storage_errors.ArtifactError:
    """Maps S3's error codes ("Error responses" in the API reference). A HEAD has no body: its code is the status."""
    described = error.response.get("Error", {})
    code, message = str(described.get("Code", "")), str(described.get("Message", ""))
    status = error.response.get("ResponseMetadata", {}).get("HTTPStatusCode")
    if code in CREDENTIAL_CODES:
        return storage_errors.CredentialsRefused(where, code)
    if error.operation_name.startswith("AssumeRole") and status in {400, 403}:  # STS, which gives the credentials
        return storage_errors.CredentialsRefused(where, f"{error.operation_name}: {code}: {message[:200]}")
    if code == "NoSuchBucket":
        return storage_errors.BucketMissing(where, f"{code}{described.get(NEAR_BUCKET, '')}")
    if code in REGION_CODES or status == 301:
        return storage_errors.BucketMissing(where, f"{code or 301}: not in this region")
    if code == "InvalidRange" or status == 416:
        return storage_errors.EmptyRange(where, code)
    if code.startswith("KMS.") or (status in {400, 403} and "kms:" in message.lower()):
        needed = re.search(r"kms:\w+", message)
        default = "kms:GenerateDataKey" if permission == "s3:PutObject" else "kms:Decrypt"
        return storage_errors.KmsDenied(where, needed.group() if needed else default, code)
    if code in {"NoSuchKey", "404", "NoSuchUpload"} or status == 404:
        return storage_errors.NotFound(where)
    if status in {409, 412}:
        return storage_errors.Conflict(where, retry=status == 409)
    if status in {401, 403}:
        reads = permission == "s3:GetObject"
        return storage_errors.AccessDenied(where, LOOKS_DENIED.format(permission) if reads else permission, code)
    return storage_errors.StoreUnavailable(where, f"{code or status}: {message[:200]}")
