"""`make dashboard`: tells which panels of the Grafana dashboard have data of a running endpoint."""

from __future__ import annotations

import shutil
import signal
import sys
import tempfile
import time
from pathlib import Path
from urllib.parse import urlsplit

import click

from compose.prometheus import Prometheus, queries


@click.command()
@click.argument("url")
@click.option("--seconds", default=120.0, show_default=True, help="How long to wait for data. The endpoint needs load.")
def main(url: str, seconds: float) -> None:
    """Scrape the endpoint at URL, and exit with 1 if a query of the dashboard has no data in time."""
    endpoint = urlsplit(url).netloc
    if not endpoint:
        raise click.BadParameter(f"{url} names no host. Write http://127.0.0.1:8080", param_hint="URL")
    if shutil.which("prometheus") is None:
        raise click.ClickException("prometheus is not installed. It is a Debian package: apt-get install prometheus")
    for ending in (signal.SIGTERM, signal.SIGHUP):  # a closed terminal, too, ends Prometheus
        if signal.getsignal(ending) is not signal.SIG_IGN:  # `nohup`
            signal.signal(ending, lambda number, _: sys.exit(128 + number))
    end = time.monotonic() + seconds
    missing = queries()
    with tempfile.TemporaryDirectory() as directory, Prometheus(Path(directory), endpoint) as prometheus:
        while missing and time.monotonic() < end:
            time.sleep(1)
            for name, query in list(missing.items()):
                if values := prometheus.values(query):
                    click.echo(f"data     {name}: {', '.join(f'{value:.4g}' for value in values)}")
                    del missing[name]
    for name, query in missing.items():
        click.echo(f"no data  {name}: {query}")
    sys.exit(1 if missing else 0)


if __name__ == "__main__":
    main()
