"""The Grafana dashboard: a real Prometheus scrapes a real endpoint, and every query of every panel has data."""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import urlsplit

import httpx
import pytest
import yaml
from click.testing import CliRunner

from benchmarks.serving.serving import workloads
from compose.__main__ import main
from compose.prometheus import Prometheus, queries
from tests.endpoint.serve_process import ServeProcess

COMPOSE = Path(__file__).parents[2] / "compose"
# The requests of `make bench QUICK=1`: streamed and whole.
BODIES = [json.loads(mix.body(0)) | {"model": "sample"} for mix in workloads((2,), ("chat",), quick=True)]


@pytest.fixture(scope="module")
def prometheus(endpoint: ServeProcess, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Prometheus]:
    if shutil.which("prometheus") is None:
        pytest.skip("prometheus (a Debian package) is not installed")
    with Prometheus(tmp_path_factory.mktemp("prometheus"), urlsplit(endpoint.url).netloc) as running:
        yield running
    assert running.process.returncode == 0


@pytest.mark.engine
def test_every_panel_has_data_under_the_load_of_the_benchmark(prometheus: Prometheus, endpoint: ServeProcess) -> None:
    """A rate needs two scrapes, so requests go on until each query has a number."""
    missing = queries()

    def all_have_data() -> bool:
        for body in BODIES:
            assert endpoint.client.post("/v1/chat/completions", json=body).status_code == httpx.codes.OK
        for name, query in list(missing.items()):
            if prometheus.values(query):
                del missing[name]
        return not missing

    try:
        endpoint.until(all_have_data, 90)
    except AssertionError:
        raise AssertionError(f"no data: {missing}") from None


def test_compose_mounts_what_is_there_and_publishes_only_on_this_machine() -> None:
    services = yaml.safe_load((COMPOSE / "compose.yaml").read_text())["services"]
    assert {*services} == {"s3", "endpoint", "prometheus", "grafana"}
    for service in services.values():
        for volume in service.get("volumes", ()):
            assert (COMPOSE / volume.partition(":")[0]).exists()
            assert volume.endswith(":ro")
        assert all(port.startswith("127.0.0.1:") for port in service.get("ports", ()))
    source = yaml.safe_load((COMPOSE / "grafana" / "sources.yaml").read_text())["datasources"][0]
    board = json.loads((COMPOSE / "grafana" / "neuron-endpoint.json").read_text())
    assert {panel["datasource"]["uid"] for panel in board["panels"]} == {source["uid"]}
    (scraped,) = yaml.safe_load((COMPOSE / "prometheus.yaml").read_text())["scrape_configs"][0]["static_configs"]
    assert scraped["targets"] == ["endpoint:8080"]


@pytest.mark.parametrize(
    ("url", "installed", "told"),
    [
        ("http://127.0.0.1:8080", False, "prometheus is not installed. It is a Debian package"),
        ("127.0.0.1:8080", True, "127.0.0.1:8080 names no host. Write http://127.0.0.1:8080"),
    ],
)
def test_make_dashboard_says_what_it_lacks(
    url: str, installed: bool, told: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(shutil, "which", lambda program: f"/usr/bin/{program}" if installed else None)
    result = CliRunner().invoke(main, [url])
    assert (result.exit_code, told in result.output) == (2 if installed else 1, True), result.output
