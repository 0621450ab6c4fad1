"""What the command line asks a running service: how it is, and the rehearsals of faults."""

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
    """Why a command can't be carried out."""


class Administration:
    def __init__(self, host: Host, planned: PlannedErrors, token: str) -> None:
        self._host = host
        self._planned = planned
        self._token = token

    def mount(self, app: Flask) -> None:
        app.add_url_rule(f"{COMMANDS}<command>", "administration", self.answer, methods=["POST"])

    def answer(self, command: str) -> Response:
        if not hmac.compare_digest(request.headers.get(TOKEN, "").encode(), self._token.encode()):
            return reply({"message": "The token is not that of the running service."}, 403)
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

    def status(self, _asked: dict[str, Any]) -> dict[str, Any]:
        return {"endpoints": {live.name: self._instances(live) for live in self._host.all()}}

    def kill(self, asked: dict[str, Any]) -> dict[str, Any]:
        """SIGKILL for one instance: the one that is named, or a healthy one."""
        instance = self._instance(asked)
        instance.kill()
        return {"instance": instance.id, "pid": instance.pid}

    def refuse_pings(self, asked: dict[str, Any]) -> dict[str, Any]:
        instance = self._instance(asked)
        instance.illness.pings_refused_until = time.monotonic() + float(asked["seconds"])
        return {"instance": instance.id}

    def slow(self, asked: dict[str, Any]) -> dict[str, Any]:
        self._endpoint(asked).chaos.slow(float(asked["delay"]), float(asked["seconds"]))
        return {}

    def throttle(self, asked: dict[str, Any]) -> dict[str, Any]:
        self._endpoint(asked).chaos.throttle(float(asked["share"]), float(asked["seconds"]))
        return {}

    def error(self, asked: dict[str, Any]) -> dict[str, Any]:
        """The next calls fail with a documented error."""
        if asked["endpoint"] is not None:
            self._endpoint(asked)
        try:
            operations = self._planned.plan(asked["code"], asked["operation"], asked["endpoint"], int(asked["times"]))
        except ValueError as error:
            raise Refused(str(error)) from error
        return {"operations": operations}

    def _endpoint(self, asked: dict[str, Any]) -> LiveEndpoint:
        live = self._host.find(asked["endpoint"])
        if live is None:
            raise Refused(f"There is no endpoint {asked['endpoint']}.")
        return live

    def _instance(self, asked: dict[str, Any]) -> Instance:
        live = self._endpoint(asked)
        healthy = [instance for pool in live.pools() for instance in pool.healthy()]
        if name := asked.get("instance"):
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
