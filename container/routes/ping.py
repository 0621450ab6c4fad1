"""GET /ping: 200 once the engine serves, 503 with the stage while it starts, 500 when it has failed or stalls.

SageMaker sends it with a 2 s time-out and reads the status. The body is for people and for the deploy command.
"""

from __future__ import annotations

import time

from flask import Blueprint, Response

from container.routes.page_metrics import progress, stage_times, timeline
from container.service import Service
from handler.neuron.hardware.installed_packages import runtime_versions
from handler.neuron.hardware.monitor_report import MonitorReport
from handler.schemas.reply import encode
from handler.startup.lifecycle import ServingStatus

STATUS = {ServingStatus.STARTING: 503, ServingStatus.READY: 200, ServingStatus.DRAINING: 503, ServingStatus.FAILED: 500}


def blueprint(service: Service) -> Blueprint:
    routes = Blueprint("health", __name__)

    @routes.get("/ping")
    def ping() -> Response:
        code, body = ping_reply(service)
        return Response(body, code, content_type="application/json") if body else Response(status=code)

    routes.add_url_rule("/health", "as_vllm", ping)  # where vLLM answers, so routers ask there
    return routes


def ping_reply(service: Service) -> tuple[int, bytes]:
    """The status and the body of the reply."""
    status = service.lifecycle.status
    code, state, reason = STATUS[status.state], status.state.value, status.reason
    engine = service.engine
    if status.state is ServingStatus.READY and engine is not None:
        problem = engine.problem()
        if problem is not None:
            code, state, reason = 500, "stalled" if not engine.dead() else "failed", f"the engine: {problem}"
        elif service.monitor is not None and (device_problem := service.monitor.problem()) is not None:
            code, state, reason = 500, "hardware", device_problem
    if code == 200:
        return 200, b""
    body: dict[str, object] = {"status": state, **stage_times(status, service.lifecycle.began)}
    if status.total:
        body["progress"] = progress(status)
    if running := [step for step in service.lifecycle.steps.values() if step.ended is None]:
        now = time.monotonic()
        body["steps"] = [
            {"step": step.name, "seconds": round(now - step.began, 1), **progress(step)} for step in running
        ]
    if status.waiting:
        body["waiting"] = status.waiting
    if reason:
        body["reason"] = reason
    if status.state is ServingStatus.FAILED and not service.lifecycle.served:
        body["timeline"] = timeline(service.lifecycle)
    if service.monitor is not None and (report := service.monitor.latest()) is not None:
        body["neuron"] = _neuron(report)
    return code, encode(body)


def _neuron(report: MonitorReport) -> dict[str, object]:
    """A summary of the devices. /metrics has all values."""
    shares = report.utilization.values()
    summary: dict[str, object | None] = {
        "devices": report.devices,
        "device_type": report.device_type,
        "cores": report.cores,
        "cores_in_use": len(shares),
        "utilization_percent": round(sum(shares) / len(shares), 1) if shares else None,
        "memory_used_bytes": report.memory_used.get("neuron_device"),
        "memory_bytes": report.devices * report.device_memory if report.devices and report.device_memory else None,
        "runtime": runtime_versions().get("runtime"),
        "problems": list(report.problems) or None,
    }
    return {name: value for name, value in summary.items() if value is not None}
