"""`neuron-endpoint verify`."""

from __future__ import annotations

import sys

import click

from model_packaging.console.options import json_option, local_only_option
from model_packaging.console.output import print_json, size_text
from model_packaging.console.package_options import shown


@click.command("verify")
@click.argument("package")
@json_option
@local_only_option
def command(package: str, as_json: bool) -> None:
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
