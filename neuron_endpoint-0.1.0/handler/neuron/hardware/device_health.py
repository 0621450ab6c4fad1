"""Adds up the reports of neuron-monitor and decides whether the Neuron devices are healthy.

An uncorrected ECC event, or an execution that ended in a hardware error, makes an endpoint unhealthy: the device may
compute wrong results from then on. AWS's Neuron node problem detector considers such errors unrecoverable and replaces
the node; a /ping of 500 makes SageMaker do the same. Other errors do not make the endpoint unhealthy. The hardware
corrects some of them itself; numerical and model errors come from the request or the model; and a serious runtime error
ends the engine, which /ping reports anyway. /metrics has all of them.

The guide does not tell whether the ECC counters count from the driver's start or within the period. So only increases
over the last report count. The values in the first report are from before this process.

Sources: AWS Neuron documentation, "Neuron Monitor User Guide" (`execution_stats`, `neuron_hw_counters`) and
"Neuron node problem detector and recovery".
"""

from __future__ import annotations

from collections import Counter

from handler.neuron.hardware.monitor_report import HARDWARE, UNCORRECTED, MonitorReport


class DeviceHealth:
    """Totals of all reports, and the verdict on the devices.

    :ivar errors, executions, ecc: totals for /metrics, with keys as in `MonitorReport`.
    """

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

    def failure(self) -> str | None:
        """The reason why the devices are unhealthy; None if they are healthy."""
        for (device, kind), count in sorted(self.ecc.items()):
            if kind in UNCORRECTED and count:
                memory = "SRAM" if kind.startswith("sram") else "DRAM"
                return f"Neuron device {device} had {count} uncorrected ECC errors in its {memory}"
        if self.errors[HARDWARE]:
            return f"{self.errors[HARDWARE]} executions ended in a hardware error of a Neuron device"
        return None
