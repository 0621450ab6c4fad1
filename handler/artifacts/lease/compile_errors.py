"""Errors of a compile and of the wait for it. Each message gives the fix."""

from __future__ import annotations

from handler.start_failure import fix_for
from handler.storage.storage_errors import ArtifactError

# For how many seconds a failure is remembered that may not happen on another instance, or here the next time.
SHORT = 300.0


class CompileFailed(ArtifactError):
    """The compiler rejected this configuration. The failure is remembered for a while.

    Temporary problems and problems of this machine (a full disk, a lost connection) are not remembered and raise other
    errors.

    :param log: the end of the compiler's log. Secrets are removed before it is stored.
    :param seconds: for how long the failure is remembered. None is the default duration.
    :param crashed: the compiler crashed. The same compile may succeed here the next time, or on another instance.
    :param fix: the sentence that says what to do. Empty: it follows from the reason.
    """

    code = "compile_failed"

    def __init__(
        self, reason: str, log: str = "", seconds: float | None = None, *, crashed: bool = False, fix: str = ""
    ) -> None:
        self.reason, self.log, self.seconds, self.crashed = reason, log, seconds, crashed
        super().__init__(f"The compilation failed: {reason}. {fix or fix_for(reason)}")


class CompileKilled(CompileFailed):
    """The compiling process was ended by a signal. The configuration may be fine, so this is handled like a crash.

    If it happens on several instances, it is remembered for SHORT only: it is never an error of the configuration.

    :param signal: the name of the signal, for example SIGKILL.
    """

    code = "compile_killed"

    def __init__(self, signal: str) -> None:
        self.signal = signal
        fix = (
            f"The host may have run out of memory. This instance tries again after {SHORT:.0f} s, another one at once. "
            "Use an instance with more memory, or compile on a larger one and set ENDPOINT_ON_MISS to 'wait' here."
        )
        super().__init__(f"the compiling process was ended by {signal}", seconds=SHORT, crashed=True, fix=fix)


class FailedBefore(ArtifactError):
    """The compile of this key failed recently, on this instance or another. Times in seconds.

    :param where: the object that records the failure.
    :param log: the end of the compiler's log.
    """

    code = "compile_failed_before"

    def __init__(self, where: str, reason: str, machine: str, age: float, left: float, log: str) -> None:
        self.log = log
        by = f" on {machine}" if machine else ""
        super().__init__(
            f"This configuration failed to compile {age:,.0f} s ago{by}: {reason}. It is not tried again for another "
            f"{left:,.0f} s: change the configuration, or delete {where} to try at once."
        )


class NoEntry(ArtifactError):
    """There is no entry, and the settings forbid a compile. `miss` is the sentence that explains the miss."""

    code = "artifact_missing"

    def __init__(self, store: str, miss: str) -> None:
        super().__init__(
            f"{store} does not have the artifacts for this configuration. {miss} Publish them there, or set "
            "ENDPOINT_ON_MISS to 'compile' and no variable that forbids a compile (NEURON_LIBTORCH_ASSERT_CACHE_HIT)."
        )


class AcquireTimedOut(ArtifactError):
    """The deadline of the start passed after `waited` seconds. `doing` is what the start was waiting for."""

    code = "artifact_wait_timed_out"

    def __init__(self, waited: float, doing: str) -> None:
        super().__init__(
            f"No compiled artifacts after {waited:,.0f} s, {doing}. Give the start more time "
            "(ENDPOINT_ARTIFACT_DEADLINE, and SageMaker's ContainerStartupHealthCheckTimeoutInSeconds), or publish "
            "the artifacts before the endpoint is created."
        )


class LeaseLost(ArtifactError):
    """This instance no longer holds the lease, so it may not publish."""

    code = "artifact_lease_lost"

    def __init__(self, where: str, reason: str) -> None:
        super().__init__(f"The lease {where} was lost ({reason}).")
