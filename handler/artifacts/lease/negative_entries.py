"""Records failed compiles for a while, so that a fleet does not repeat them for hours.

A failure is the object `failures/<kind>/<key>.json`. Its age is this machine's time minus the store's modification
time. The two clocks differ by less than 15 minutes: otherwise S3 rejects requests (RequestTimeTooSkewed).
"""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

from handler.artifacts.identity.artifact_key import ArtifactKey
from handler.artifacts.lease.clock import Clock
from handler.artifacts.lease.compile_errors import CompileFailed, FailedBefore
from handler.artifacts.lease.log_redaction import redacted, tail
from handler.artifacts.store import object_names
from handler.storage.object_store import ObjectStore
from handler.storage.storage_errors import NotFound

PREFIX = "failures/"
# For how many seconds a failure is remembered.
SECONDS = 3600.0
LARGEST = 64 * 1024
LONGEST_REASON = 500


class _Failure(msgspec.Struct, frozen=True):
    key: str
    reason: str
    log: str
    machine: str
    failed: float
    seconds: float


# Made at import: two threads that meet a type at the same time end the process (see `neff_store`).
_FAILURES = msgspec.json.Decoder(_Failure)


class NegativeEntries:
    """The recorded failures of one store.

    :param seconds: for how long a failure that is written here is remembered.
    :param environ: the process's variables. Their secrets are removed from what is stored.
    """

    def __init__(
        self, objects: ObjectStore, clock: Clock, seconds: float = SECONDS, environ: Mapping[str, str] | None = None
    ) -> None:
        self._objects, self._clock, self._seconds, self._environ = objects, clock, seconds, environ or {}

    def require_none(self, key: ArtifactKey) -> None:
        """Returns if there is no recorded failure of this key.

        :raises FailedBefore: the compile of this key failed, and the failure is still remembered.
        """
        name = name_of(key)
        try:
            body, _ = self._objects.get(name, limit=LARGEST)
            failure = _FAILURES.decode(body)
            written = self._objects.head(name).modified
        except (NotFound, msgspec.DecodeError, UnicodeDecodeError):
            return
        age = max(0.0, self._clock.date() - written)
        if failure.key == key.digest and age < failure.seconds:
            where = self._objects.location(name).uri
            left = failure.seconds - age
            raise FailedBefore(where, failure.reason, failure.machine, age, left, failure.log)

    def write(self, key: ArtifactKey, error: CompileFailed, machine: str = "") -> None:
        """Records a failure. It replaces an older one."""
        failure = _Failure(
            key=key.digest,
            reason=redacted(error.reason, self._environ)[:LONGEST_REASON],
            log=tail(error.log, self._environ),
            machine=machine,
            failed=self._clock.date(),
            seconds=self._seconds if error.seconds is None else min(error.seconds, self._seconds),
        )
        self._objects.put(name_of(key), msgspec.json.encode(failure))

    def clear(self, key: ArtifactKey) -> None:
        """Deletes a recorded failure, so that the next start tries at once."""
        self._objects.delete(name_of(key))


def name_of(key: ArtifactKey) -> str:
    return PREFIX + object_names.manifest_name(key.kind, key.digest).removeprefix(object_names.MANIFESTS)
