"""A Prometheus with the checked-in configuration, pointed at another endpoint, and the queries of the dashboard."""

from __future__ import annotations

import json
import math
import subprocess
from pathlib import Path
from typing import Any, Self

import httpx
import yaml

from handler.processes import free_port

HERE = Path(__file__).parent


def queries() -> dict[str, str]:
    """Every query of every panel of the dashboard, by the panel's title and the query's legend."""
    panels = json.loads((HERE / "grafana" / "neuron-endpoint.json").read_text())["panels"]
    return {
        f"{panel['title']}, {target['legendFormat']}": target["expr"] for panel in panels for target in panel["targets"]
    }


class Prometheus:
    """Scrapes an endpoint each second. The program ``prometheus`` must be installed (a Debian package).

    :param directory: for its data.
    :param endpoint: host and port.
    """

    def __init__(self, directory: Path, endpoint: str) -> None:
        configuration = yaml.safe_load((HERE / "prometheus.yaml").read_text())
        (job,) = configuration["scrape_configs"]
        job["static_configs"] = [{"targets": [endpoint]}]
        job["scrape_interval"] = "1s"
        (directory / "prometheus.yaml").write_text(yaml.safe_dump(configuration))
        self.address = f"127.0.0.1:{free_port()}"
        options = ["--config.file=prometheus.yaml", "--storage.tsdb.path=data", f"--web.listen-address={self.address}"]
        with (directory / "log").open("w") as log:
            self.process = subprocess.Popen(["prometheus", *options], cwd=directory, stderr=log)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self.process.terminate()
        self.process.wait(30)

    def values(self, query: str) -> list[float]:
        """The numbers that a query gives now. A quantile without requests is not one."""
        try:
            address = f"http://{self.address}/api/v1/query"
            reply = httpx.get(address, params={"query": query.replace("$__rate_interval", "1m")})
        except httpx.TransportError:
            return []
        found: list[dict[str, Any]] = reply.json()["data"]["result"] if reply.status_code == httpx.codes.OK else []
        return [value for each in found if not math.isnan(value := float(each["value"][1]))]
