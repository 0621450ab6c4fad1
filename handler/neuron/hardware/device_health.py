"""What the reports of neuron-monitor add up to since this process began, and whether the devices can be trusted.

An uncorrected ECC event, or an execution that ended in a hardware error, makes an endpoint unhealthy: what the device
computes from then on may be wrong, and nobody should get it as an answer. AWS's Neuron node problem detector takes such
errors for unrecoverable and has the node replaced; a /ping of 500 leads SageMaker to the same. Errors of other kinds do
not: the hardware fixes corrected and transient ones, numerical and model errors come of the request or the model,
and after a runtime error that matters the engine is dead, which /ping tells anyway. All are in /metrics.

The guide does not say whether the ECC counters count from the driver's start or within the period. So only what is
above the last report's figure counts, and what the first report has was there before us.

Sources: AWS Neuron documentation, "Neuron Monitor User Guide" (`execution_stats`, `neuron_hw_counters`) and
"Neuron node problem detector and recovery".
"""

from __future__ import annotations

from collections import Counter

from handler.neuron.hardware.monitor_report import HARDWARE, UNCORRECTED, MonitorReport


class DeviceHealth:
    """:ivar errors, executions, ecc: totals, for /metrics; keys as in `MonitorReport`."""

    def __init__(self) -> None:
        self.errors: Counter[str] = Counter()
        self.executions: Counter[str] = Counter()
        self.ecc: Counter[tuple[str, str]] = Counter()
        self._last: dict[tuple[str, str], int] = {}

    def add(self, report: MonitorReport) -> None:
        self.errors.update(report.errors)
        self.executions.update(report.executions)
        for key, count in report.ecc.items():
            self.ecc[key] += max(0, count - self._last.get(key, count))
            self._last[key] = count

    def trouble(self) -> str | None:
        """Why the devices cannot be trusted any more; None as long as they can."""
        for (device, kind), count in sorted(self.ecc.items()):
            if kind in UNCORRECTED and count:
                memory = "SRAM" if kind.startswith("sram") else "DRAM"
                return f"Neuron device {device} had {count} uncorrected ECC errors in its {memory}"
        if self.errors[HARDWARE]:
            return f"{self.errors[HARDWARE]} executions ended in a hardware error of a Neuron device"
        return None
