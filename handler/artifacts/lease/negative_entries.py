"""Records failed compiles for a while, so that a fleet does not repeat them for hours.

A failure is the object `failures/<kind>/<key>.json`. Its age is this machine's time minus the store's modification
time, or the time in the entry if that is older. The clocks differ by less than 15 minutes: otherwise S3 rejects
requests (RequestTimeTooSkewed).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

import msgspec

from handler.artifacts.identity.artifact_key import ArtifactKey
from handler.artifacts.lease.compile_errors import SHORT, CompileFailed, FailedBefore
from handler.artifacts.lease.lease import Clock
from handler.artifacts.lease.log_redaction import redacted, tail
from handler.artifacts.store import object_names
from handler.artifacts.store.manifest_signature import Signature, Signer
from handler.storage.object_store import ObjectStore
from handler.storage.storage_errors import NotFound, SignatureRefused, TooLarge
from handler.storage.transfer.download_directory import boot_id

PREFIX = "failures/"
# For how many seconds a failure is remembered, at most.
SECONDS = 3600.0
# The compiler has to crash on so many instances, within so many seconds, before nobody tries again for SECONDS.
INSTANCES, CRASHES_COUNT = 2, 6 * 3600.0
# Seconds by which an entry may be newer than this machine's clock.
MAX_SKEW = 900.0
# Signed failures begin with it. It is not JSON, so that no manifest's signature is valid for a failure.
PURPOSE = b"failed compile\n"
LARGEST = 64 * 1024
LONGEST_REASON = 500


class _Failure(msgspec.Struct, frozen=True, omit_defaults=True):
    """:param settings: the digest of the settings with which the compile failed.
    :param crashed_on: the boot ids of the hosts on which the compiler crashed or was killed. Empty for any other
    failure.
    """

    key: str
    reason: str
    log: str
    settings: str
    machine: str
    failed: float
    seconds: float
    crashed_on: tuple[str, ...] = ()
    signature: Signature | None = None

    def signed_bytes(self) -> bytes:
        return PURPOSE + msgspec.json.encode(msgspec.structs.replace(self, signature=None))


# Made at import: two threads that meet a type at the same time end the process (see `neff_store`).
_FAILURES = msgspec.json.Decoder(_Failure)


@dataclass(frozen=True, slots=True)
class NegativeEntries:
    """The recorded failures of one store. What is not valid, or not signed where it should be, counts as none.

    :param environ: the process's variables. Their secrets are removed from what is stored.
    :param signer: if given, failures are signed, and only those with its signature count.
    :param settings: this start's `settings_digest`.
    :param boot: this host's boot id. It identifies the host in the memory of crashes: a host name is the same on every
        SageMaker host, and another one in every new container.
    """

    objects: ObjectStore
    clock: Clock
    environ: Mapping[str, str] = field(default_factory=dict)
    signer: Signer | None = None
    settings: str = ""
    boot: str = field(default_factory=boot_id)

    def require_none(self, key: ArtifactKey) -> None:
        """Returns if this host may compile the key.

        A crash of the compiler on one host holds for that host only. Another one may try. Any other failure holds for
        the settings that it happened with: a setting that is not part of the key may have been the cause.

        :raises FailedBefore: the compile of this key failed, and the failure is still remembered. It never is for more
            than SECONDS, whatever the entry says.
        """
        failure, age = self._read(key)
        if failure is None or not self._concerns(failure):
            return
        left = min(failure.seconds, SECONDS) - age
        if left > 0:
            where = self.objects.location(name_of(key)).uri
            raise FailedBefore(where, failure.reason, failure.machine, age, left, failure.log)

    def _concerns(self, failure: _Failure) -> bool:
        if failure.crashed_on:
            return len(failure.crashed_on) >= INSTANCES or self.boot in failure.crashed_on
        return failure.settings == self.settings

    def _read(self, key: ArtifactKey) -> tuple[_Failure | None, float]:
        """The recorded failure, and its age in seconds."""
        name = name_of(key)
        try:
            body, _ = self.objects.get(name, limit=LARGEST)
            failure = _FAILURES.decode(body)
            if self.signer is not None:
                self.signer.check(failure.signed_bytes(), failure.signature, self.objects.location(name).uri)
            written = self.objects.head(name).modified
        except (NotFound, TooLarge, SignatureRefused, msgspec.DecodeError, UnicodeDecodeError):
            return None, 0.0
        # The store's time is of the last write, so a copy of an old entry would look new. The entry's own is signed.
        age = self.clock.date() - min(written, failure.failed)
        return (None, 0.0) if failure.key != key.digest or age < -MAX_SKEW else (failure, max(0.0, age))

    def write(self, key: ArtifactKey, error: CompileFailed, machine: str = "") -> None:
        """Records a failure. It replaces an older one, whose crashes still count.

        :param machine: the machine that compiled, for messages.
        """
        crashed_on: tuple[str, ...] = ()
        seconds = error.seconds
        if error.crashed:
            earlier, age = self._read(key)
            known = () if earlier is None or age > CRASHES_COUNT else earlier.crashed_on
            crashed_on = tuple(dict.fromkeys((self.boot, *known)))[:INSTANCES]
            seconds = SHORT if len(crashed_on) < INSTANCES else error.seconds
        failure = _Failure(
            key=key.digest,
            reason=redacted(error.reason, self.environ)[:LONGEST_REASON],
            log=tail(error.log, self.environ),
            settings=self.settings,
            machine=machine,
            failed=self.clock.date(),
            seconds=SECONDS if seconds is None else min(seconds, SECONDS),
            crashed_on=crashed_on,
        )
        if self.signer is not None:
            failure = msgspec.structs.replace(failure, signature=self.signer.sign(failure.signed_bytes()))
        self.objects.put(name_of(key), msgspec.json.encode(failure))


def name_of(key: ArtifactKey) -> str:
    return PREFIX + object_names.manifest_name(key.kind, key.digest).removeprefix(object_names.MANIFESTS)
