"""`neuron-endpoint pack`, `push`, `inspect` and `verify`, which write and read a package."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict
from functools import wraps
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from model_packaging.console.options import dry_run_option, json_option, local_only_option
from model_packaging.console.output import print_json, size_text

if TYPE_CHECKING:
    from handler.json_value import Json
    from model_packaging.package.assembly import Assembly, PackageInputs
    from model_packaging.package.package_manifest import PackageManifest


GRAPHS_HELP = "Add compiled graphs: a directory for NEURON_COMPILED_ARTIFACTS, or a store."


def input_options(command: Callable[..., None]) -> Callable[..., None]:
    """Adds MODEL and the options of the package's other parts. The command gets them as `inputs`."""

    @click.argument("model")
    @click.option("--artifacts", metavar="PLACE", help=GRAPHS_HELP)
    @click.option("--config", metavar="FILE", help="Add the endpoint's settings, in YAML, TOML or JSON.")
    @click.option("--code", metavar="FOLDER", help="Add a folder with inference.py and what it imports.")
    @click.option("--revision", help="Take this branch, tag or commit of the hub repository.")
    @wraps(command)
    def with_inputs(
        model: str, artifacts: str | None, config: str | None, code: str | None, revision: str | None, **given: Any
    ) -> None:
        from model_packaging.package.assembly import PackageInputs

        command(inputs=PackageInputs(model, artifacts, config, code, revision), **given)

    return with_inputs


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
        require_local,
        require_package_name,
        write_archive,
        write_folder,
    )

    require_local(to)
    require_package_name("--to", to)
    target = Path(to)
    require_absent(target)
    assembly = assemble(inputs)
    manifest = _read_all(assembly)
    if not dry_run:
        with _shown("pack") as listener:
            if to.endswith(ARCHIVES):
                write_archive(assembly.items, manifest, target, listener, level)
            else:
                write_folder(assembly.items, manifest, target, listener)
    if as_json:
        print_json(_document(assembly, to=to, written=not dry_run))
        return
    _print_excluded(assembly)
    verb = "Would pack" if dry_run else "Packed"
    click.echo(f"{verb} {len(assembly.items)} files, {size_text(assembly.size)}, into {to}.")


@click.command("push")
@input_options
@click.argument("destination", metavar="s3://BUCKET/PREFIX")
@click.option("--kms-key", metavar="ARN", help="Encrypt the objects with this KMS key. Default: as the bucket does.")
@click.option("--replace", is_flag=True, help="Replace another package, and delete its other files.")
@dry_run_option
@json_option
@local_only_option
def push_command(
    inputs: PackageInputs, destination: str, kms_key: str | None, replace: bool, dry_run: bool, as_json: bool
) -> None:
    """Uploads a package to S3, file by file. Files that exist there already are skipped.

    MODEL is an input of `pack`, or a folder that it wrote. After an interruption, run the same command again.
    """
    from model_packaging.package.assembly import assemble
    from model_packaging.package.upload import UploadTarget, compare, push

    target = UploadTarget.parse(destination, kms_key, replace)
    assembly = assemble(inputs)
    manifest = _read_all(assembly)
    if dry_run:
        _, others, missing = compare(assembly.items, manifest, target)
        if as_json:
            names: list[Json] = [item.path for item in missing]
            print_json(_document(assembly, to=target.uri, missing=names, sent=0, would_delete=[*others]))
            return
        _print_excluded(assembly)
        for path in others:
            click.echo(f"Would delete {target.uri}{path}.")
        size = size_text(sum(item.size for item in missing))
        click.echo(f"Would upload {len(missing)} of {len(assembly.items)} files, {size}, to {target.uri}.")
        return
    with _shown("push") as listener:
        done = push(assembly.items, manifest, target, listener)
    if as_json:
        print_json(_document(assembly, to=target.uri, sent=done.sent, kept=done.kept, deleted=done.deleted))
        return
    _print_excluded(assembly)
    click.echo(f"Pushed {done.files} files to {target.uri}: {size_text(done.sent)} sent, {size_text(done.kept)} there.")


@click.command("inspect")
@click.argument("package")
@json_option
@local_only_option
def inspect_command(package: str, as_json: bool) -> None:
    """Shows what a package contains: a folder or s3://bucket/prefix. No weights are read."""
    from model_packaging.package.package_reader import inspect, open_package

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
    with _shown("verify") as listener:
        faults = verify(opened, listener)
    if as_json:
        print_json({"uri": package, "faults": [{"path": fault.path, "problem": fault.problem} for fault in faults]})
    elif faults:
        for fault in faults:
            click.echo(f"{fault.path} {fault.problem}")
    else:
        click.echo(f"{package} is whole: {len(opened.manifest.files)} files, {size_text(opened.manifest.size)}.")
    sys.exit(1 if faults else 0)


def _read_all(assembly: Assembly) -> PackageManifest:
    """Reads every file and returns the manifest. Shows a progress bar."""
    from model_packaging.package.package_manifest import digest_all
    from model_packaging.package.secret_scan import known_secrets

    with _shown("read") as listener:
        return digest_all(assembly.items, known_secrets(os.environ), listener)


@contextmanager
def _shown(description: str) -> Iterator[Callable[[int, int], None]]:
    """Shows a progress bar on standard error if that is a terminal."""
    from handler.storage.transfer.transfer_progress import TransferProgress, progress_bar

    with progress_bar(description) as listener:
        yield lambda done, total: listener(TransferProgress(done, total))


def _document(assembly: Assembly, **more: Json) -> dict[str, Json]:
    files: list[Json] = [{"path": item.path, "size": item.size} for item in assembly.items]
    return {**more, "files": files, "size": assembly.size, "excluded": dict(assembly.left)}


def _print_excluded(assembly: Assembly) -> None:
    from handler.errors.base import one_line

    for path, reason in assembly.left.items():
        click.echo(one_line(f"excluded: {path} ({reason})"), err=True)
