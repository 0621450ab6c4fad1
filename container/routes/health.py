"""GET /ping: 200 only when the engine answers, 503 with the stage while it starts, 500 when it failed or stalls.

SageMaker asks with a 2 s time-out and reads the status; the body is for people and for the deploy command.
"""

from __future__ import annotations

import time

from flask import Blueprint, Response

from container.lifecycle import State
from container.service import Service
from handler.schemas.reply import encode

STATUS = {State.STARTING: 503, State.READY: 200, State.DRAINING: 503, State.FAILED: 500}


def blueprint(service: Service) -> Blueprint:
    routes = Blueprint("health", __name__)

    @routes.get("/ping")
    def ping() -> Response:
        status = service.lifecycle.status
        code, state, reason = STATUS[status.state], status.state.value, status.reason
        engine = service.engine
        if status.state is State.READY and engine is not None:
            trouble = engine.trouble()
            if trouble is not None:
                code, state, reason = 500, "stalled" if not engine.dead() else "failed", f"the engine: {trouble}"
        if code == 200:
            return Response(status=200)
        now = time.monotonic()
        body: dict[str, object] = {
            "status": state,
            "stage": status.stage,
            "stage_seconds": round(now - status.since, 1),
            "seconds": round(now - service.lifecycle.began, 1),
        }
        if status.total:
            body["progress"] = {
                "done_bytes": status.done,
                "total_bytes": status.total,
                "bytes_per_second": round(status.rate),
            }
        if status.waiting:
            body["waiting"] = status.waiting
        if reason:
            body["reason"] = reason
        return Response(encode(body), status=code, content_type="application/json")

    return routes
