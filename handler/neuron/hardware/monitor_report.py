"""Parses a report of neuron-monitor, a line of JSON, and decides whether the Neuron devices are healthy.

Sources: AWS Neuron documentation, "Neuron Monitor User Guide" and "Neuron node problem detector and recovery".

A value that is missing or null counts as not known. A value of an unexpected type is ignored, and so are other keys.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Final

from handler.json_value import Json, json_object, mapping

# Events in a device's memory, by the guide's names.
ECC: Final = ("mem_ecc_corrected", "mem_ecc_uncorrected", "sram_ecc_corrected", "sram_ecc_uncorrected")
UNCORRECTED: Final = ("mem_ecc_uncorrected", "sram_ecc_uncorrected")
HARDWARE: Final = "hardware"


@dataclass(frozen=True, slots=True)
class MonitorReport:
    """One report. Sizes are in bytes, utilization in percent of the reporting period.

    :param devices: the number of Neuron devices of this instance; None if it is not known.
    :param cores: the number of logical cores of all devices.
    :param device_memory: the memory of each device.
    :param memory_used: the memory used by all Neuron applications: `host`, `neuron_device`.
    :param utilization: the utilization of each active core.
    :param errors: executions that failed within the period, by the guide's kinds (`hardware`, `numerical` ...).
    :param executions: executions within the period, by outcome (`completed`, `timed_out` ...).
    :param ecc: by device and kind; see `ECC`.
    :param problems: errors of the monitor itself.
    """

    devices: int | None = None
    cores: int | None = None
    device_memory: int | None = None
    device_type: str | None = None
    memory_used: Mapping[str, int] = field(default_factory=dict)
    utilization: Mapping[str, float] = field(default_factory=dict)
    errors: Mapping[str, int] = field(default_factory=dict)
    executions: Mapping[str, int] = field(default_factory=dict)
    ecc: Mapping[tuple[str, str], int] = field(default_factory=dict)
    problems: tuple[str, ...] = ()


class DeviceHealth:
    """Totals of all reports, and whether the Neuron devices are healthy.

    An uncorrected ECC event, or an execution that ended in a hardware error, makes an endpoint unhealthy: the device
    may compute wrong results from then on. AWS's Neuron node problem detector considers such errors unrecoverable and
    replaces the node; a /ping of 500 makes SageMaker do the same. Other errors do not. The hardware corrects some of
    them itself; numerical and model errors come from the request or the model; and a serious runtime error ends the
    engine, which /ping reports anyway. /metrics has all of them.

    The guide does not tell whether the ECC counters count from the driver's start or within the period. So only
    increases over the last report count. The values in the first report are from before this process.

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


def parse(line: bytes) -> MonitorReport:
    """:raises ValueError: the line is not a JSON object."""
    document = json_object(line)
    if document is None:
        raise ValueError("not a JSON object")
    hardware = mapping(document.get("neuron_hardware_info"))
    devices = _count(hardware.get("neuron_device_count"))
    per_device = _count(hardware.get("neuroncore_per_device_count"))
    lnc = _count(hardware.get("logical_neuroncore_config")) or 1
    kind = hardware.get("neuron_device_type")
    memory: dict[str, int] = {}
    utilization: dict[str, float] = {}
    errors: dict[str, int] = {}
    executions: dict[str, int] = {}
    for report in _reports(document):
        _add(memory, mapping(report.get("memory_used")).get("neuron_runtime_used_bytes"), ("host", "neuron_device"))
        stats = mapping(report.get("execution_stats"))
        _add(errors, stats.get("error_summary"))
        _add(executions, stats.get("execution_summary"))
        for core, data in mapping(mapping(report.get("neuroncore_counters")).get("neuroncores_in_use")).items():
            share = mapping(data).get("neuroncore_utilization")
            if isinstance(share, int | float) and not isinstance(share, bool) and 0 <= share < 1000:
                utilization[core] = utilization.get(core, 0.0) + float(share)
    return MonitorReport(
        devices=devices,
        cores=devices * per_device // lnc if devices is not None and per_device is not None else None,
        device_memory=_count(hardware.get("neuron_device_memory_size")),
        device_type=kind if isinstance(kind, str) else None,
        memory_used=memory,
        utilization=utilization,
        errors=errors,
        executions=executions,
        ecc=_ecc(document),
        problems=tuple(_problems(document)),
    )


def _reports(document: Mapping[str, Json]) -> Iterator[Mapping[str, Json]]:
    """The report of each Neuron application."""
    runtimes = document.get("neuron_runtime_data")
    for runtime in runtimes if isinstance(runtimes, list) else []:
        yield mapping(mapping(runtime).get("report"))


def _ecc(document: Mapping[str, Json]) -> dict[tuple[str, str], int]:
    listed = mapping(mapping(document.get("system_data")).get("neuron_hw_counters")).get("neuron_devices")
    counts = {}
    for device in listed if isinstance(listed, list) else []:
        counters = mapping(device)
        for kind in ECC:
            count = _count(counters.get(kind))
            if count is not None:
                counts[str(counters.get("neuron_device_index")), kind] = count
    return counts


def _problems(document: Mapping[str, Json]) -> Iterator[str]:
    parts = [document.get("neuron_hardware_info"), *mapping(document.get("system_data")).values()]
    runtimes = document.get("neuron_runtime_data")
    parts += runtimes if isinstance(runtimes, list) else []
    for report in _reports(document):
        parts += report.values()
    for part in parts:
        error = mapping(part).get("error")
        if isinstance(error, str) and error:
            yield error[:200]


def _add(sums: dict[str, int], counts: object, names: tuple[str, ...] | None = None) -> None:
    """Adds the counts of another application: all of them, or those in `names`."""
    for name, value in mapping(counts).items():
        count = _count(value)
        if count is not None and (names is None or name in names):
            sums[name] = sums.get(name, 0) + count


def _count(value: object) -> int | None:
    return value if isinstance(value, int) and not isinstance(value, bool) and value >= 0 else None
