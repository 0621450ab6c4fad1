"""Reports of neuron-monitor: what is read from them, and when the devices are unhealthy."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from handler.neuron.hardware.installed_packages import runtime_versions
from handler.neuron.hardware.monitor_report import DeviceHealth, MonitorReport, parse

REPORTS = Path(__file__).parents[3] / "neuron_monitor"


def reports(name: str) -> list[MonitorReport]:
    return [parse(line) for line in (REPORTS / f"{name}.jsonl").read_bytes().splitlines()]


def health(*names: str) -> DeviceHealth:
    health = DeviceHealth()
    for name in names:
        for report in reports(name):
            health.add(report)
    return health


def test_a_report_in_the_documented_format() -> None:
    _, report, _ = reports("healthy")
    assert (report.devices, report.cores, report.device_type) == (16, 64, "trainium2")  # LNC 2: two physical a core
    assert report.device_memory == 96 * 2**30
    assert report.memory_used == {"host": 6997643264, "neuron_device": 12519788544}
    assert report.utilization == {"0": 42.01, "1": 58.03}
    assert report.executions["completed"] == 123
    assert report.problems == ()


def test_before_a_model_is_loaded_there_is_no_application() -> None:
    report = reports("healthy")[0]
    assert report.devices == 16
    assert report.utilization == {}
    assert report.memory_used == {}


def test_errors_of_the_monitor_are_reported() -> None:
    (report,) = reports("no_driver")
    assert set(report.problems) == {"neuron driver is not loaded", "cannot reach", "no such process"}
    assert report.devices == 0


@pytest.mark.parametrize("line", [b"", b"null", b"[1]", b"{", b"\xff", b"[" * 100_000])
def test_a_line_that_is_not_a_report_is_rejected(line: bytes) -> None:
    with pytest.raises(ValueError):  # noqa: PT011  json's own, or ours
        parse(line)


PLAIN = st.none() | st.booleans() | st.floats() | st.integers() | st.text()
JSON = st.recursive(PLAIN, lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner))


@given(st.data())
def test_nothing_of_another_kind_is_believed_or_fatal(data: st.DataObject) -> None:
    """Any part of a good report replaced by anything."""
    document = json.loads((REPORTS / "healthy.jsonl").read_bytes().splitlines()[1])
    place = document
    while isinstance(place, dict) and place:
        key = data.draw(st.sampled_from(sorted(place)))
        if not isinstance(place[key], dict) or data.draw(st.booleans()):
            place[key] = data.draw(JSON)
            break
        place = place[key]
    report = parse(json.dumps(document).encode())
    DeviceHealth().add(report)
    assert all(isinstance(count, int) and count >= 0 for count in report.memory_used.values())


def test_corrected_and_request_errors_are_counted_and_no_reason_to_stop() -> None:
    found = health("healthy")
    assert found.failure() is None
    assert found.errors["numerical"] == 2
    assert found.executions["completed"] == 246
    assert found.ecc["0", "mem_ecc_corrected"] == 6  # 9, of which 3 were there before us
    assert found.ecc["0", "mem_ecc_uncorrected"] == 0  # there before us


def test_an_uncorrected_error_is() -> None:
    assert health("healthy", "uncorrected").failure() == "Neuron device 1 had 1 uncorrected ECC errors in its SRAM"


def test_an_execution_that_ended_in_a_hardware_error_is() -> None:
    assert health("hardware").failure() == "2 executions ended in a hardware error of a Neuron device"


def test_the_runtime_s_version_is_dpkg_s(tmp_path: Path) -> None:
    status = tmp_path / "status"
    status.write_text("Package: bash\nVersion: 5.2\n\nPackage: aws-neuronx-runtime-lib\nVersion: 2.27.23.0-8deec4dbf\n")
    assert runtime_versions(status) == {"runtime": "2.27.23.0-8deec4dbf"}
    assert runtime_versions(tmp_path / "none") == {}
