"""`neuron-endpoint inspect`."""

from __future__ import annotations

from dataclasses import asdict

import click

from model_packaging.console.options import json_option, local_only_option
from model_packaging.console.output import print_json, size_text


@click.command("inspect")
@click.argument("package")
@json_option
@local_only_option
def command(package: str, as_json: bool) -> None:
    """Shows what a package contains: a folder, s3://bucket/prefix, or a model.tar.gz. No weights are read."""
    from model_packaging.package.inspection import inspect
    from model_packaging.package.package_reader import open_package

    found = inspect(open_package(package))
    if as_json:
        print_json(asdict(found))
        return
    from model_packaging.console.tables import plain_table, show

    rows = [(part, size_text(size)) for part, size in found.parts.items()]
    model = ", ".join(f"{name} {value}" for name, value in found.model.items() if value is not None)
    graphs = ", ".join(found.graphs) or "none: they are compiled, or restored from a store, at the start"
    show(
        plain_table(("part", "size"), rows, f"{found.uri}: {found.files} files, {size_text(found.size)}"),
        f"Model: {model or 'no config.json'}\nGraphs: {graphs}\nSettings:\n{found.settings or '(none)'}",
    )
