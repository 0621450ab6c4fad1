"""The HTTP API through which the command line asks a running service for its status and injects faults."""

from __future__ import annotations

import hmac
import time
from typing import Any

from flask import Flask, request
from werkzeug.wrappers import Response

from local_sagemaker.control.protocol import reply
from local_sagemaker.hosting.endpoint import LiveEndpoint
from local_sagemaker.hosting.host import Host
from local_sagemaker.hosting.instances.instance import Instance
from local_sagemaker.runtime.planned_errors import PlannedErrors
from local_sagemaker.state_directory import COMMANDS, TOKEN


class Refused(Exception):
    """A command cannot be executed. The message is the reason."""


class Administration:
    def __init__(self, host: Host, planned: PlannedErrors, token: str) -> None:
        self._host = host
        self._planned = planned
        self._token = token

    def mount(self, app: Flask) -> None:
        app.add_url_rule(f"{COMMANDS}<command>", "administration", self.answer, methods=["POST"])

    def answer(self, command: str) -> Response:
        if not hmac.compare_digest(request.headers.get(TOKEN, "").encode(), self._token.encode()):
            return reply({"message": "The token is not the running service's."}, 403)
        commands = {
            "status": self.status,
            "kill": self.kill,
            "refuse-pings": self.refuse_pings,
            "slow": self.slow,
            "throttle": self.throttle,
            "error": self.error,
        }
        if command not in commands:
            return reply({"message": f"There is no command {command}."}, 404)
        try:
            return reply(commands[command](request.get_json(force=True)), 200)
        except Refused as error:
            return reply({"message": str(error)}, 400)

    def status(self, _params: dict[str, Any]) -> dict[str, Any]:
        return {"endpoints": {live.name: self._instances(live) for live in self._host.all()}}

    def kill(self, params: dict[str, Any]) -> dict[str, Any]:
        """Kills one instance by SIGKILL: the named one, or a healthy one."""
        instance = self._instance(params)
        instance.kill()
        return {"instance": instance.id, "pid": instance.pid}

    def refuse_pings(self, params: dict[str, Any]) -> dict[str, Any]:
        instance = self._instance(params)
        instance.pings_refused_until = time.monotonic() + float(params["seconds"])
        return {"instance": instance.id}

    def slow(self, params: dict[str, Any]) -> dict[str, Any]:
        self._endpoint(params).chaos.slow(float(params["delay"]), float(params["seconds"]))
        return {}

    def throttle(self, params: dict[str, Any]) -> dict[str, Any]:
        self._endpoint(params).chaos.throttle(float(params["share"]), float(params["seconds"]))
        return {}

    def error(self, params: dict[str, Any]) -> dict[str, Any]:
        """Makes the next calls fail with a documented error."""
        if params["endpoint"] is not None:
            self._endpoint(params)
        try:
            operations = self._planned.plan(
                params["code"], params["operation"], params["endpoint"], int(params["times"])
            )
        except ValueError as error:
            raise Refused(str(error)) from error
        return {"operations": operations}

    def _endpoint(self, params: dict[str, Any]) -> LiveEndpoint:
        live = self._host.find(params["endpoint"])
        if live is None:
            raise Refused(f"There is no endpoint {params['endpoint']}.")
        return live

    def _instance(self, params: dict[str, Any]) -> Instance:
        live = self._endpoint(params)
        healthy = [instance for pool in live.pools() for instance in pool.healthy()]
        if name := params.get("instance"):
            healthy = [instance for instance in live.instances() if instance.id == name]
        if not healthy:
            raise Refused(f"Endpoint {live.name} has no {'instance ' + name if name else 'healthy instance'}.")
        return healthy[0]

    @staticmethod
    def _instances(live: LiveEndpoint) -> list[dict[str, Any]]:
        return [
            {
                "instance": instance.id,
                "state": instance.state.value,
                "pid": instance.pid,
                "address": str(instance.address),
                "log": str(instance.log),
            }
            for instance in live.instances()
        ]
