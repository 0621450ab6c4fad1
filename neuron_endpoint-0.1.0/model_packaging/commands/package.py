"""`neuron-endpoint inspect` and `neuron-endpoint verify`, which read a package."""

from __future__ import annotations

import sys
from dataclasses import asdict

import click

from model_packaging.console.options import json_option, local_only_option
from model_packaging.console.output import print_json, size_text
from model_packaging.console.package_options import shown


@click.command("inspect")
@click.argument("package")
@json_option
@local_only_option
def inspect_command(package: str, as_json: bool) -> None:
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


@click.command("verify")
@click.argument("package")
@json_option
@local_only_option
def verify_command(package: str, as_json: bool) -> None:
    """Checks every file of a package, on this machine or in S3, against its digest. Exit status 1 if one is wrong."""
    from model_packaging.package.package_reader import open_package, verify

    opened = open_package(package)
    with shown("verify") as listener:
        faults = verify(opened, listener)
    if as_json:
        print_json({"uri": package, "faults": [{"path": fault.path, "problem": fault.problem} for fault in faults]})
    elif faults:
        for fault in faults:
            click.echo(f"{fault.path} {fault.problem}")
    else:
        click.echo(f"{package} is whole: {len(opened.manifest.files)} files, {size_text(opened.manifest.size)}.")
    sys.exit(1 if faults else 0)
