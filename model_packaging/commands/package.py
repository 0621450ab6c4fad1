"""`neuron-endpoint pack`, `inspect` and `verify`, which write and read a package."""

from __future__ import annotations

import sys
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING

import click

from model_packaging.console.options import dry_run_option, json_option, local_only_option
from model_packaging.console.output import print_json, size_text
from model_packaging.console.package_options import document, input_options, print_excluded, read_all, shown

if TYPE_CHECKING:
    from model_packaging.package.assembly import PackageInputs


@click.command("pack")
@click.option("--to", required=True, metavar="PATH", help="Write this new folder, or this new archive NAME.tar.gz.")
@click.option("--level", default=1, show_default=True, type=click.IntRange(0, 9), help="Set the gzip level (0: none).")
@input_options
@dry_run_option
@json_option
@local_only_option
def pack_command(inputs: PackageInputs, to: str, level: int, dry_run: bool, as_json: bool) -> None:
    """Writes a package: a model with its compiled graphs, settings and code.

    MODEL is a folder, s3://bucket/prefix or a hub id. The endpoint sees the package as /opt/ml/model. A folder is
    better than an archive: SageMaker unpacks an archive on one core, and weights hardly shrink. `push` does not need
    `pack`: it uploads the parts from their own places.
    """
    from model_packaging.package.assembly import assemble
    from model_packaging.package.package_writer import (
        ARCHIVES,
        require_absent,
        require_package_name,
        write_archive,
        write_folder,
    )

    require_package_name("--to", to)
    target = Path(to)
    require_absent(target)
    assembly = assemble(inputs)
    manifest = read_all(assembly)
    if not dry_run:
        with shown("pack") as listener:
            if to.endswith(ARCHIVES):
                write_archive(assembly.items, manifest, target, listener, level)
            else:
                write_folder(assembly.items, manifest, target, listener)
    if as_json:
        print_json(document(assembly, to=to, written=not dry_run))
        return
    print_excluded(assembly)
    verb = "Would pack" if dry_run else "Packed"
    click.echo(f"{verb} {len(assembly.items)} files, {size_text(assembly.size)}, into {to}.")


@click.command("inspect")
@click.argument("package")
@json_option
@local_only_option
def inspect_command(package: str, as_json: bool) -> None:
    """Shows what a package contains: a folder or s3://bucket/prefix. No weights are read."""
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
