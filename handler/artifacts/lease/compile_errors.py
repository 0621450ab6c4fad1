"""What can go wrong between a miss and an entry: each says whether anything was published, and what fixes it."""

from __future__ import annotations

from handler.start_failure import fix_for
from handler.storage.storage_errors import ArtifactError


class CompileFailed(ArtifactError):
    """The compiler refused this configuration: raised by the compiler's caller, and remembered for a while.

    Not for what passes or is this machine's own (a full disk, a lost connection): those are not remembered.

    :param log: the end of its log, at most; secrets are taken out before it is stored.
    :param seconds: for how long it is remembered; None for as long as any failure.
    """

    code = "compile_failed"

    def __init__(self, reason: str, log: str = "", seconds: float | None = None) -> None:
        self.reason, self.log, self.seconds = reason, log, seconds
        super().__init__(f"The compilation failed: {reason}. {fix_for(reason)}")


class CompileKilled(ArtifactError):
    """The compiling process was ended by a signal: that says nothing of the configuration, and is not remembered.

    :param signal: its name, SIGKILL for one.
    """

    code = "compile_killed"

    def __init__(self, signal: str) -> None:
        self.signal = signal
        super().__init__(
            f"The compilation was ended by {signal}, most often because the host ran out of memory. It is not "
            "remembered as a failure: the next start tries again. Use an instance with more memory, or let a larger "
            "one compile and set ENDPOINT_ON_MISS to 'wait' here."
        )


class FailedBefore(ArtifactError):
    """This very key failed a short while ago, here or on another instance. Times in seconds.

    :param where: the object that says so.
    :param log: the end of the compiler's log then.
    """

    code = "compile_failed_before"

    def __init__(self, where: str, reason: str, machine: str, age: float, left: float, log: str) -> None:
        self.where, self.reason, self.machine, self.age, self.left, self.log = where, reason, machine, age, left, log
        by = f" on {machine}" if machine else ""
        super().__init__(
            f"This configuration failed to compile {age:,.0f} s ago{by}: {reason}. It is not tried again for another "
            f"{left:,.0f} s: change the configuration, or delete {where} to try at once."
        )


class NoEntry(ArtifactError):
    """There is no entry, and none may be compiled here.

    :param miss: the sentence that explains the miss.
    """

    code = "artifact_missing"

    def __init__(self, store: str, miss: str, setting: str) -> None:
        self.store, self.miss = store, miss
        super().__init__(
            f"{store} does not have what this configuration needs. {miss} Publish it there, or set {setting} to "
            "'compile'."
        )


class AcquireTimedOut(ArtifactError):
    """The deadline of the start passed. `waited` in seconds.

    :param doing: what it was waiting for.
    """

    code = "artifact_wait_timed_out"

    def __init__(self, waited: float, doing: str) -> None:
        self.waited, self.doing = waited, doing
        super().__init__(
            f"No compiled artifacts after {waited:,.0f} s, {doing}. Give the start more time (SageMaker: "
            "ContainerStartupHealthCheckTimeoutInSeconds), or publish the artifacts before the endpoint is created."
        )


class LeaseLost(ArtifactError):
    """The lease is not ours any more: nothing may be published."""

    code = "artifact_lease_lost"

    def __init__(self, where: str, reason: str) -> None:
        self.where = where
        super().__init__(f"The lease {where} was lost ({reason or 'it could not be renewed in time'}).")
