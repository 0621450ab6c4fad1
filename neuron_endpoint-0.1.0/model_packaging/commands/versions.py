"""`neuron-endpoint versions`."""

from __future__ import annotations

import click

from model_packaging.console.options import json_option
from model_packaging.console.output import print_json


@click.command("versions")
@json_option
def command(as_json: bool) -> None:
    """Lists vLLM and the Neuron packages that are installed here, with their versions, and the line that they mean."""
    from handler.artifacts.identity.software_versions import neuron_versions
    from handler.neuron.hardware.installed_packages import installed_versions
    from handler.neuron.lines.line_registry import installed_line

    found = installed_versions()
    packages = dict(sorted({**neuron_versions(), **found}.items()))
    line = installed_line(found)
    if as_json:
        print_json({"packages": {**packages}, "line": line})
        return
    for name, version in packages.items():
        click.echo(f"{name} {version}")
    click.echo(f"These packages mean the line {line}." if line else "vLLM is not installed here.")
