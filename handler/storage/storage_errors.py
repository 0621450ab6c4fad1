"""Errors of object stores and of artifacts. Each message names the object and the fix."""

from __future__ import annotations

from pathlib import Path
from typing import ClassVar

from handler.errors import ServerError

CREDENTIALS = (
    "Set AWS_PROFILE (after `aws configure` or `aws sso login`), or AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, or "
    "run where a role gives them (an endpoint, an instance, a task)."
)


class ArtifactError(ServerError):
    """Base class of the errors below. They end or explain a start; none is sent to a client of the endpoint."""

    code = "artifact_error"


class LocatedError(ArtifactError):
    """An error of an object, file or bucket, which the message, `text` with `{where}` and `{problem}`, names first."""

    text: ClassVar[str]

    def __init__(self, where: str, problem: str = "") -> None:
        self.where, self.problem = where, problem
        super().__init__(self.text.format(where=where, problem=problem))


class NotFound(LocatedError):
    """The object does not exist."""

    code = "artifact_not_found"
    text = "{where} does not exist."


class Conflict(LocatedError):
    """The condition of a write did not hold: another process wrote first.

    :param retry: S3 answered 409: it did not decide which write was first. The same request may be repeated.
    """

    code = "artifact_conflict"
    text = "{where} was written by another process in the meantime: read it again."

    def __init__(self, where: str, *, retry: bool = False) -> None:
        self.retry = retry
        super().__init__(where)


class TooLarge(ArtifactError):
    """An object exceeds the size limit for objects of its kind. Nothing of it was kept. Sizes in bytes."""

    code = "artifact_too_large"

    def __init__(self, where: str, size: int, limit: int) -> None:
        super().__init__(
            f"{where} has {size:,} bytes; at most {limit:,} are read. It was not written by this software."
        )


class AccessDenied(ArtifactError):
    """S3 or the file system denied access. `permission` is what the role, or the directory's mode, must allow."""

    code = "artifact_access_denied"

    def __init__(self, where: str, permission: str, reason: str = "") -> None:
        because = f" ({reason})" if reason else ""
        super().__init__(f"Access to {where} was denied{because}: allow {permission}.")


class KmsDenied(AccessDenied):
    """The object is encrypted with a KMS key that the role may not use, or that is disabled or deleted."""

    code = "artifact_kms_denied"

    def __init__(self, where: str, permission: str, reason: str) -> None:
        super().__init__(where, f"{permission} on the bucket's KMS key, in the role and in the key's policy", reason)


class CredentialsRefused(LocatedError):
    """Credentials are missing, expired or wrong, or the machine's clock is wrong."""

    code = "artifact_credentials_refused"
    text = (
        "{where} cannot be accessed with these credentials ({problem}): "
        "check the endpoint's role, its credentials and the machine's clock."
    )


class CredentialsMissing(CredentialsRefused):
    """No credentials were found."""

    text = "{where} needs AWS credentials, and there are none. " + CREDENTIALS


class BucketMissing(LocatedError):
    """The bucket does not exist, or is in another region."""

    code = "artifact_bucket_missing"
    text = "{where}: there is no such bucket ({problem}). Check its name, the account and AWS_REGION."


class StoreUnavailable(LocatedError):
    """The network, the service or the disk failed, also after retries."""

    code = "artifact_store_unavailable"
    retry_after = 5
    text = "{where} cannot be used now ({problem}): try again, and check the network or the disk."


class StoreUnusable(LocatedError):
    """A directory that no time makes usable: it is full, or its file system has no locks."""

    code = "artifact_store_unusable"
    text = "{where} cannot be used ({problem}): make room, or use a file system that locks files (flock)."


class EmptyRange(StoreUnavailable):
    """The object ends before the range that was asked for."""


class ConditionsIgnored(LocatedError):
    """The S3-compatible server ignores conditional writes, so two machines cannot coordinate through it."""

    code = "artifact_conditions_ignored"
    text = (
        "{where} ignores conditional writes (If-None-Match), which two machines need to coordinate: "
        "use Amazon S3, or a server that supports them."
    )


class InvalidManifest(LocatedError):
    """The manifest of an entry cannot be used."""

    code = "artifact_manifest_invalid"
    text = "The manifest {where} cannot be used: {problem}. Delete the entry and publish it again."


class UnknownSchema(InvalidManifest):
    """The manifest was written by another version of this software."""

    code = "artifact_schema_unknown"

    def __init__(self, where: str, schema: object, known: int) -> None:
        super().__init__(where, f"its schema is {str(schema)[:40]!r} and this version reads {known}")


class UnsafePath(LocatedError):
    """A path would leave its directory, or clashes with another path in it."""

    code = "artifact_path_unsafe"
    text = "The path {where!r} is rejected: it {problem}."

    def __init__(self, path: str, problem: str) -> None:
        super().__init__(path[:200], problem)


class UnsafeArchive(LocatedError):
    """A tar archive contains something other than plain files and directories, or is too large."""

    code = "artifact_archive_unsafe"
    text = "{where} is not unpacked: {problem}. Pack plain files and directories with relative paths."


class SignatureRefused(LocatedError):
    """A signing key is configured, and this entry is not signed with it. `model.pt` is executable code.

    :ivar unsigned: nobody has signed it. So a compile replaces it, which never replaces what another key has signed.
    """

    code = "artifact_signature_refused"
    text = "{where} is rejected: {problem}."
    unsigned = False

    def __init__(self, where: str, problem: str, *, unsigned: bool = False) -> None:
        fix = (
            "A start with ENDPOINT_ON_MISS=compile replaces it"
            if unsigned
            else "Configure the key that signed it, or delete it with `neuron-endpoint store rm`"
        )
        super().__init__(where, f"{problem}. {fix}")
        self.unsigned = unsigned


class DigestMismatch(ArtifactError):
    """The content of an object does not have the digest that the manifest records."""

    code = "artifact_digest_mismatch"

    def __init__(self, where: str, expected: str, actual: str) -> None:
        self.expected = expected
        super().__init__(f"{where} has the digest {actual[:16]}... instead of {expected[:16]}...: it was damaged.")


class EntryDamaged(ArtifactError):
    """Objects of an entry are damaged or missing. `entries` are the URIs of the manifests."""

    code = "artifact_entry_damaged"

    def __init__(self, entries: list[str], error: ArtifactError) -> None:
        super().__init__(
            f"{error.message} So {' or '.join(entries)} is damaged: delete it with `neuron-endpoint store rm "
            "--damaged STORE KEY`. The next start compiles it again."
        )


class ChangedFile(LocatedError):
    """A file changed while it was published."""

    code = "artifact_file_changed"
    text = "{where} changed while it was published: publish it when no process writes to it any more."


class RestoreTimedOut(ArtifactError):
    """The deadline passed. The files on disk are kept, and the next restore resumes."""

    code = "artifact_restore_timed_out"

    def __init__(self, target: Path, done: int, total: int, doing: str) -> None:
        super().__init__(
            f"The restore to {target} did not finish in time: {done / 1e6:,.0f} of {total / 1e6:,.0f} MB, {doing}. "
            "Allow more time; the next start resumes it."
        )
