"""botocore's errors as ours: each names bucket, key and what must be allowed."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from handler.storage.storage_errors import (
    AccessDenied,
    ArtifactError,
    BucketMissing,
    Conflict,
    CredentialsRefused,
    KmsDenied,
    NotFound,
    StoreUnavailable,
)

if TYPE_CHECKING:
    from botocore.exceptions import ClientError

# Without s3:ListBucket, S3 answers 403 instead of 404 for an object that is not there (GetObject's reference).
LOOKS_DENIED = "{} (and s3:ListBucket on the bucket: without it an object that is missing looks denied)"
REFUSED = {
    "InvalidAccessKeyId",
    "SignatureDoesNotMatch",
    "ExpiredToken",
    "InvalidToken",
    "TokenRefreshRequired",
    "RequestTimeTooSkewed",
    "RequestExpired",
}
ELSEWHERE = {"NoSuchBucket", "PermanentRedirect", "AuthorizationHeaderMalformed", "IllegalLocationConstraintException"}


@contextmanager
def translated(where: str, permission: str) -> Iterator[None]:
    """Turns what botocore raises inside into `handler.storage.storage_errors`.

    :param where: the object's URI.
    :param permission: what the call needs: `s3:GetObject`.
    """
    from botocore.exceptions import (
        BotoCoreError,
        ClientError,
        NoCredentialsError,
        ParamValidationError,
        PartialCredentialsError,
    )
    from urllib3.exceptions import HTTPError

    try:
        yield
    except ClientError as error:
        raise _of_reply(error, where, permission) from error
    except (NoCredentialsError, PartialCredentialsError) as error:
        raise CredentialsRefused(where, str(error)) from error
    except ParamValidationError as error:
        raise BucketMissing(where, str(error).replace("\n", " ")) from error
    except (BotoCoreError, HTTPError) as error:
        raise StoreUnavailable(where, f"{type(error).__name__}: {error}") from error


def _of_reply(error: ClientError, where: str, permission: str) -> ArtifactError:
    """S3's error codes: "Error responses" in the API reference. A HEAD has no body, so its code is the status."""
    code = str(error.response.get("Error", {}).get("Code", ""))
    message = str(error.response.get("Error", {}).get("Message", ""))
    status = error.response.get("ResponseMetadata", {}).get("HTTPStatusCode")
    if code in REFUSED:
        return CredentialsRefused(where, code)
    if code in ELSEWHERE or status == 301:
        return BucketMissing(where, code or "301")
    if code.startswith("KMS.") or (status in {400, 403} and "kms:" in message.lower()):
        needed = re.search(r"kms:\w+", message)
        default = "kms:GenerateDataKey" if permission == "s3:PutObject" else "kms:Decrypt"
        return KmsDenied(where, needed.group() if needed else default, code)
    if code in {"NoSuchKey", "404", "NoSuchUpload"} or status == 404:
        return NotFound(where)
    if status in {409, 412}:
        return Conflict(where, retry=status == 409)
    if status in {401, 403}:
        reads = permission == "s3:GetObject"
        return AccessDenied(where, LOOKS_DENIED.format(permission) if reads else permission, code)
    return StoreUnavailable(where, f"{code or status}: {message[:200]}")
