"""The reports of neuron-monitor as Prometheus metrics. Without a recent report there are totals only."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TypeVar

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, InfoMetricFamily
from prometheus_client.metrics_core import Metric

from handler.neuron.hardware.installed_packages import runtime_versions
from handler.neuron.hardware.neuron_monitor import NeuronMonitor

Family = TypeVar("Family", GaugeMetricFamily, CounterMetricFamily)


def metrics(monitor: NeuronMonitor) -> Iterator[Metric]:
    """Gauges from the last report, and totals since this process began."""
    report, health = monitor.latest(), monitor.health
    yield CounterMetricFamily(
        "endpoint_neuron_monitor_starts", "Starts of neuron-monitor. It is restarted when it ends.", monitor.starts
    )
    yield InfoMetricFamily("endpoint_neuron", "Versions of the Neuron software outside Python.", runtime_versions())
    for name, text, labels, counts in (
        ("execution_errors", "Failed executions, by the runtime's kind of error.", ["kind"], health.errors),
        ("executions", "Executions on the devices, by outcome.", ["outcome"], health.executions),
    ):
        yield labelled(CounterMetricFamily(f"endpoint_neuron_{name}", text, labels=labels), counts)
    ecc = CounterMetricFamily("endpoint_neuron_ecc_events", "ECC events in a device.", labels=["device", "kind"])
    for (device, kind), count in sorted(health.ecc.items()):
        ecc.add_metric([device, kind], count)
    yield ecc
    if report is None:
        return
    for name, text, value in (
        ("devices", "Neuron devices of this instance.", report.devices),
        ("cores", "Logical Neuron cores of this instance.", report.cores),
        ("device_memory_bytes", "Memory of each Neuron device.", report.device_memory),
    ):
        if value is not None:
            yield GaugeMetricFamily(f"endpoint_neuron_{name}", text, value)
    used = GaugeMetricFamily("endpoint_neuron_memory_used_bytes", "Memory in use, by place.", labels=["place"])
    yield labelled(used, report.memory_used)
    busy = GaugeMetricFamily(
        "endpoint_neuron_core_utilization_ratio", "Share of time in which a core is busy.", labels=["core"]
    )
    for core, percent in report.utilization.items():
        busy.add_metric([core], percent / 100)
    yield busy


def labelled(family: Family, values: Mapping[str, float]) -> Family:
    """The family with a sample for each value of its one label, in alphabetical order."""
    for label, value in sorted(values.items()):
        family.add_metric([label], value)
    return family
