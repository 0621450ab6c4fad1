"""The port is bound first of all, or the setting that is at fault is named."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from container.server.acceptor_process import listen
from handler.config.loading.config_loader import load
from handler.errors import SettingError

ROOT = Path(__file__).parents[3]
SERVE = Path(sys.executable).with_name("serve")


@pytest.fixture
def taken() -> Iterator[int]:
    """A port that another process might have."""
    with socket.create_server(("0.0.0.0", 0)) as other:
        yield other.getsockname()[1]


def settings(port: int) -> dict[str, str]:
    return {"ENDPOINT_MODEL": "org/model", "SAGEMAKER_BIND_TO_PORT": str(port)}


def test_who_connects_before_anybody_accepts_is_kept() -> None:
    with listen(load(settings(0))) as listener, socket.create_connection(listener.getsockname(), 5) as client:
        client.sendall(b"GET /ping")
        accepted, _ = listener.accept()
        with accepted:
            assert accepted.recv(9) == b"GET /ping"


def test_a_port_that_is_taken_names_its_setting(taken: int) -> None:
    with pytest.raises(SettingError) as caught:
        listen(load(settings(taken)))
    assert caught.value.setting == "SAGEMAKER_BIND_TO_PORT"
    assert f"port {taken} cannot be bound: Address already in use" in caught.value.message


def test_serve_ends_at_once_where_the_port_is_taken(taken: int) -> None:
    environment = {**os.environ, **settings(taken)}
    ended = subprocess.run([SERVE], env=environment, capture_output=True, text=True, timeout=60)
    assert ended.returncode == 2
    assert ended.stderr == (
        f"serve: SAGEMAKER_BIND_TO_PORT: port {taken} cannot be bound: Address already in use. "
        "Set it to a free port, or end the process that uses this one.\n"
    )


def test_the_server_and_its_routes_are_imported_after_it() -> None:
    """They are most of the time until gunicorn could bind the port."""
    script = (
        "import json, sys\n"
        "from unittest import mock\n"
        "def bound(config):\n"
        "    print(json.dumps(sorted(sys.modules)))\n"
        "    sys.exit(0)\n"
        "with mock.patch('container.server.acceptor_process.listen', bound):\n"
        "    from container.serve import main\n"
        "    main()\n"
    )
    environment = {**os.environ, **settings(0)}
    run = [sys.executable, "-c", script]
    found = subprocess.run(run, cwd=ROOT, env=environment, capture_output=True, text=True, timeout=60, check=True)
    loaded = {name.partition(".")[0] for name in json.loads(found.stdout)}
    assert not loaded & {"flask", "werkzeug", "gunicorn", "vllm", "torch", "boto3"}
