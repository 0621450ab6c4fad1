"""What can go wrong with artifacts and with the place that keeps them; each error names the object and the fix."""

from __future__ import annotations

from handler.errors import ServerError


class ArtifactError(ServerError):
    """Root of this part of the tree. None of them reaches a caller of the endpoint: they end, or explain, a start."""

    code = "artifact_error"


class NotFound(ArtifactError):
    """There is no such object."""

    code = "artifact_not_found"

    def __init__(self, where: str) -> None:
        self.where = where
        super().__init__(f"{where} does not exist.")


class Conflict(ArtifactError):
    """A condition of a write did not hold: somebody else was first.

    :param retry: it was not decided who was first (S3's 409): the same request may be made again.
    """

    code = "artifact_conflict"

    def __init__(self, where: str, *, retry: bool = False) -> None:
        self.where, self.retry = where, retry
        super().__init__(f"{where} was written by somebody else in the meantime: read it again.")


class TooLarge(ArtifactError):
    """An object that is read whole is larger than anything of ours; nothing of it was kept. Sizes in bytes."""

    code = "artifact_too_large"

    def __init__(self, where: str, size: int | None, limit: int) -> None:
        self.where, self.size, self.limit = where, size, limit
        found = f"{size:,} bytes" if size is not None else f"more than {limit:,} bytes"
        super().__init__(f"{where} has {found}, and at most {limit:,} are read: it was not written by this software.")


class AccessDenied(ArtifactError):
    """S3 or the file system refused. `permission` is what the role, or the directory's mode, must allow."""

    code = "artifact_access_denied"

    def __init__(self, where: str, permission: str, reason: str = "") -> None:
        self.where, self.permission = where, permission
        because = f" ({reason})" if reason else ""
        super().__init__(f"Access to {where} was denied{because}: allow {permission}.")


class KmsDenied(AccessDenied):
    """The object is encrypted with a KMS key that the role may not use, or that is disabled or gone."""

    code = "artifact_kms_denied"

    def __init__(self, where: str, permission: str, reason: str) -> None:
        super().__init__(where, f"{permission} on the bucket's KMS key, in the role and in the key's policy", reason)


class CredentialsRefused(ArtifactError):
    """No credentials, or expired or wrong ones, or a clock that is off."""

    code = "artifact_credentials_refused"

    def __init__(self, where: str, reason: str) -> None:
        self.where, self.reason = where, reason
        super().__init__(
            f"{where} cannot be reached with these credentials ({reason}): "
            "check the endpoint's role, its credentials and the machine's clock."
        )


class BucketMissing(ArtifactError):
    """There is no such bucket, or none in this region."""

    code = "artifact_bucket_missing"

    def __init__(self, where: str, reason: str) -> None:
        self.where, self.reason = where, reason
        super().__init__(f"The bucket of {where} cannot be used ({reason}): check its name and AWS_REGION.")


class StoreUnavailable(ArtifactError):
    """The network, the service or the disk failed, and retries did not help."""

    code = "artifact_store_unavailable"
    retry_after = 5

    def __init__(self, where: str, reason: str) -> None:
        self.where, self.reason = where, reason
        super().__init__(f"{where} cannot be used now ({reason}): try again, and check the network or the disk.")


class ConditionsIgnored(ArtifactError):
    """A server that speaks S3 but ignores conditional writes: nothing can be decided between two machines there."""

    code = "artifact_conditions_ignored"

    def __init__(self, where: str) -> None:
        self.where = where
        super().__init__(
            f"{where} ignores conditional writes (If-None-Match), without which two machines cannot agree: "
            "use Amazon S3, or a server that honours them."
        )


class InvalidManifest(ArtifactError):
    """A manifest that cannot be trusted to say which files an entry has."""

    code = "artifact_manifest_invalid"

    def __init__(self, where: str, problem: str) -> None:
        self.where, self.problem = where, problem
        super().__init__(f"The manifest {where} cannot be used: {problem}. Delete the entry and publish it again.")


class UnknownSchema(InvalidManifest):
    """Written by another version of this software."""

    code = "artifact_schema_unknown"

    def __init__(self, where: str, schema: object, known: int) -> None:
        self.schema = schema
        super().__init__(where, f"its schema is {str(schema)[:40]!r} and this version reads {known}")


class UnsafePath(ArtifactError):
    """A path that would leave its directory, or clash with another in it."""

    code = "artifact_path_unsafe"

    def __init__(self, path: str, problem: str) -> None:
        self.path, self.problem = path[:200], problem
        super().__init__(f"The path {self.path!r} is refused: it {problem}.")


class UnsafeArchive(ArtifactError):
    """A tar that holds something other than plain files and directories, or too much."""

    code = "artifact_archive_unsafe"

    def __init__(self, where: str, problem: str) -> None:
        self.where, self.problem = where, problem
        super().__init__(f"{where} is not unpacked: {problem}. Pack plain files and directories with relative paths.")


class SignatureRefused(ArtifactError):
    """A key for signatures is configured, and this entry is not signed with it: `model.pt` is executable."""

    code = "artifact_signature_refused"

    def __init__(self, where: str, problem: str) -> None:
        self.where, self.problem = where, problem
        super().__init__(
            f"{where} is refused: {problem}. Publish it again with the configured key, or configure the key it has."
        )


class DigestMismatch(ArtifactError):
    """Bytes are not what the manifest says."""

    code = "artifact_digest_mismatch"

    def __init__(self, where: str, expected: str, found: str) -> None:
        self.where, self.expected, self.found = where, expected, found
        super().__init__(f"{where} has the digest {found[:16]}... and not {expected[:16]}...: it was damaged.")


class EntryDamaged(ArtifactError):
    """An entry whose bytes are wrong, or gone.

    :param entries: the manifests, as URIs.
    """

    code = "artifact_entry_damaged"

    def __init__(self, entries: list[str], error: ArtifactError) -> None:
        self.entries = entries
        super().__init__(
            f"{error.message} So {' or '.join(entries)} is damaged: delete it, and the next start compiles it anew."
        )


class ChangedFile(ArtifactError):
    """A file that changed while it was published."""

    code = "artifact_file_changed"

    def __init__(self, path: str) -> None:
        self.path = path
        super().__init__(f"{path} changed while it was published: publish when nothing writes to it any more.")
