"""Machines that serve over the stand-in for the Neuron plugin: each its own directories, one store for all."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import boto3
import pytest
from moto.moto_server.werkzeug_app import DomainDispatcherApplication, create_backend_app
from neuron_stand_in.installation import installed
from werkzeug.serving import make_server

import sample_model
from handler.neuron.hardware.installed_packages import installed_versions
from handler.neuron.planning.vllm_versions import public
from sample_model.facts import by_name
from tests.aws_keys import KEYS, VARIABLES
from tests.endpoint.serve_process import STARTED_WITHIN, ServeProcess

Wanted = Callable[[str], bool]


class HeldS3:
    """moto's server with a gate before it. `hold` is asked for each request, as `GET /bucket/key`.

    :ivar held: the request that stands at the gate now.
    """

    def __init__(self) -> None:
        self.hold: Wanted = lambda request: False
        self.held = threading.Event()
        self._go = threading.Event()
        self._backend = DomainDispatcherApplication(create_backend_app)
        self._server = make_server("127.0.0.1", 0, self._gate, threaded=True)
        self.url = f"http://127.0.0.1:{self._server.server_port}"
        self._thread = threading.Thread(target=self._server.serve_forever, daemon=True)
        self._thread.start()

    def hold_at(self, wanted: Wanted) -> None:
        """From now on the requests that `wanted` picks wait."""
        self.held.clear()
        self._go = threading.Event()
        self.hold = wanted

    def drop(self) -> None:
        """What stood at the gate has never arrived, and nothing waits any more."""
        self.hold = lambda request: False
        self._go.set()

    def close(self) -> None:
        self.drop()
        self._server.shutdown()

    def _gate(self, environ: dict[str, Any], start_response: Any) -> Iterable[bytes]:
        go = self._go
        if self.hold(f"{environ['REQUEST_METHOD']} {environ['PATH_INFO']}"):
            self.held.set()
            go.wait(60)
            start_response("503 Slow Down", [])
            return [b""]
        reply: Iterable[bytes] = self._backend(environ, start_response)
        return reply


QUESTION = {"messages": [{"role": "user", "content": by_name("ping").questions[0]}], "temperature": 0}
ANSWER = by_name("ping").answer
LEASE_SECONDS = 3
CREDENTIALS = {**VARIABLES, "AWS_EC2_METADATA_DISABLED": "true"}
NXDI = {
    "NEURON_STAND_IN": "1",
    "ENDPOINT_LINE": "nxdi-0.16",
    "ENDPOINT_INSTANCE": "ml.inf2.xlarge",
    "ENDPOINT_SAVE_SHARDED_CHECKPOINT": "true",
    "SM_VLLM_TENSOR_PARALLEL_SIZE": "2",
}
NXDI_VLLM = "0.16.0"
NATIVE = {
    "NEURON_STAND_IN": "native",
    "ENDPOINT_LINE": "native-0.24",
    "ENDPOINT_INSTANCE": "ml.trn2.48xlarge",
    "SM_VLLM_TENSOR_PARALLEL_SIZE": "2",  # vLLM 0.16 wants 4 GiB of swap space for each rank
}


class Fleet:
    """S3 with the sample model and a store in it, and the machines that use them.

    :param line: the variables of the line that is served.
    """

    def __init__(self, directory: Path, line: dict[str, str], name: str) -> None:
        vllm = public(installed_versions()["vllm"])
        if line["ENDPOINT_LINE"] == NXDI["ENDPOINT_LINE"] and vllm != NXDI_VLLM:
            pytest.skip(f"the stand-in for the NxDI plugin runs in vLLM {NXDI_VLLM} only, and {vllm} is installed")
        self.directory = directory
        self.line = {**installed(directory / "site"), **line}
        self.bucket = name
        self.s3 = HeldS3()
        self.client: Any = boto3.client("s3", endpoint_url=self.s3.url, **KEYS)
        self.client.create_bucket(Bucket=name)
        for file in sample_model.path().iterdir():
            self.client.upload_file(str(file), name, f"model/{file.name}")

    def serve(self, machine: str, store: str = "store", **environment: str) -> ServeProcess:
        """Starts `serve` on a machine, whose directories are as its last process left them. An empty `store`: none."""
        directory = self.directory / machine
        return ServeProcess(
            directory,
            {
                **CREDENTIALS,
                **self.line,
                "AWS_ENDPOINT_URL": self.s3.url,
                "SAGEMAKER_BASE_DIR": str(directory),
                "ENDPOINT_MODEL": f"s3://{self.bucket}/model",
                "ENDPOINT_SCRATCH": str(self.scratch(machine)),
                **({"ENDPOINT_ARTIFACT_STORE": f"s3://{self.bucket}/{store}"} if store else {}),
                "ENDPOINT_ARTIFACT_LEASE": str(LEASE_SECONDS),
                "ENDPOINT_ENGINE_RESTARTS": "0",
                "SM_VLLM_MAX_NUM_SEQS": "4",
                "BASE_COMPILE_WORK_DIR": str(directory / "work"),
                **environment,
            },
        )

    def draft(self) -> Path:
        """A directory with the sample model, as a draft of itself."""
        return sample_model.path()

    def scratch(self, machine: str) -> Path:
        return self.directory / machine / "scratch"

    def killed_at_request(self, machine: str, stage: str, part: str, **environment: str) -> ServeProcess:
        """Killed while /ping says `stage` and the machine waits for a request to S3 that has `part` in it."""
        started: list[ServeProcess] = []
        self.s3.hold_at(lambda request: part in request and bool(started) and started[0].stage() == stage)
        started.append(self.serve(machine, **environment))
        return self._killed(started[0], self.s3.held.is_set)

    def killed_in_engine(self, machine: str, stage: str, at: str, **environment: str) -> ServeProcess:
        """Killed while /ping says `stage` and the stand-in stands still at its own stage `at`."""
        mark = self.directory / machine / f"held-at-{at}"
        fault = {"FAULT": "hold", "FAULT_AT": at, "FAULT_ONCE": str(mark)}
        held = {f"STAND_IN_{name}": value for name, value in fault.items()}
        served = self.serve(machine, **held, **environment)
        served.until(mark.exists, STARTED_WITHIN)
        return self._killed(served, lambda: served.stage() == stage)

    def _killed(self, served: ServeProcess, reached: Callable[[], bool]) -> ServeProcess:
        try:
            served.until(reached, STARTED_WITHIN)
        finally:
            served.kill_all()
            self.s3.drop()
        return served

    def stored(self, below: str = "store/") -> set[str]:
        """The names of the store's objects."""
        pages = self.client.get_paginator("list_objects_v2").paginate(Bucket=self.bucket, Prefix=below)
        return {item["Key"].removeprefix(below) for page in pages for item in page.get("Contents", [])}

    def manifests(self) -> list[str]:
        """The kinds of the entries that a reader finds."""
        return sorted(name.split("/")[1] for name in self.stored() if name.startswith("manifests/"))

    def close(self) -> None:
        self.s3.close()


def answered(served: ServeProcess, within: float = STARTED_WITHIN) -> str:
    """Ready within the seconds given, asked, and ended; what it answered."""
    with served.serving(within):
        reply = served.client.post("/invocations", json=QUESTION)
    assert reply.status_code == 200, reply.text
    content: str = reply.json()["choices"][0]["message"]["content"]
    return content


def failed(served: ServeProcess) -> str:
    """The reason that /ping gave, after which the process ended as one that cannot start."""
    served.wait_port()
    served.until(lambda: served.ping()[0] == 500, STARTED_WITHIN)
    body = json.loads(served.ping()[1])
    assert body["status"] == "failed"
    assert served.process.wait(20) == 3, served.log
    served.client.close()
    reason: str = body["reason"]
    assert f"failed: {reason}" in served.log
    return reason
