"""`neuron-endpoint pack`."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from model_packaging.console.options import dry_run_option, json_option, local_only_option
from model_packaging.console.output import print_json, size_text
from model_packaging.console.package_options import document, input_options, print_excluded, read_all, shown

if TYPE_CHECKING:
    from model_packaging.package.assembly import PackageInputs


@click.command("pack")
@click.option("--to", required=True, metavar="PATH", help="New folder, or new archive NAME.tar.gz.")
@click.option("--level", default=1, show_default=True, type=click.IntRange(0, 9), help="gzip level (0: none).")
@input_options
@dry_run_option
@json_option
@local_only_option
def command(inputs: PackageInputs, to: str, level: int, dry_run: bool, as_json: bool) -> None:
    """Writes a package: a model with its compiled graphs, settings and code.

    MODEL is a folder, s3://bucket/prefix or a hub id. The endpoint sees the package as /opt/ml/model. A folder is
    better than an archive: SageMaker unpacks an archive on one core, and weights hardly shrink. `push` does not need
    `pack`: it uploads the parts from their own places.
    """
    from model_packaging.package.assembly import assemble
    from model_packaging.package.package_writer import require_absent, write_archive, write_folder

    target = Path(to)
    require_absent(target)
    assembly = assemble(inputs)
    manifest = read_all(assembly)
    if not dry_run:
        with shown("pack") as listener:
            if to.endswith((".tar.gz", ".tgz")):
                write_archive(assembly.items, manifest, target, listener, level)
            else:
                write_folder(assembly.items, manifest, target, listener)
    if as_json:
        print_json(document(assembly, to=to, written=not dry_run))
        return
    print_excluded(assembly)
    verb = "Would pack" if dry_run else "Packed"
    click.echo(f"{verb} {len(assembly.items)} files, {size_text(assembly.size)}, into {to}.")
