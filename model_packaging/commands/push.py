"""`neuron-endpoint push`."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from model_packaging.console.options import dry_run_option, json_option, local_only_option
from model_packaging.console.output import print_json, size_text
from model_packaging.console.package_options import document, input_options, print_excluded, read_all, shown

if TYPE_CHECKING:
    from model_packaging.package.assembly import PackageInputs
    from model_packaging.package.upload import UploadTarget


@click.command("push")
@input_options
@click.argument("destination", metavar="s3://BUCKET/PREFIX")
@click.option("--kms-key", metavar="ARN", help="Encrypt the objects with this KMS key. Default: as the bucket does.")
@click.option("--replace", is_flag=True, help="Replace another package, and delete its other files.")
@dry_run_option
@json_option
@local_only_option
def command(
    inputs: PackageInputs, destination: str, kms_key: str | None, replace: bool, dry_run: bool, as_json: bool
) -> None:
    """Uploads a package to S3, file by file. Files that exist there already are skipped.

    MODEL is an input of `pack`, or its output. A model.tar.gz is uploaded unchanged to s3://BUCKET/KEY.tar.gz. After an
    interruption, the same command resumes the upload.
    """
    from model_packaging.package.assembly import assemble
    from model_packaging.package.destination import target_of

    target = target_of(destination, kms_key, replace)
    if destination.endswith((".tar.gz", ".tgz")):
        _push_archive(Path(inputs.model), destination, target, dry_run, as_json)
        return
    from model_packaging.package.upload import compare, push

    assembly = assemble(inputs)
    manifest = read_all(assembly)
    if dry_run:
        missing = compare(assembly.items, manifest, target).missing
        size = sum(item.size for item in missing)
        if as_json:
            print_json(document(assembly, to=target.uri, missing=[item.path for item in missing], sent=0))
        else:
            click.echo(
                f"Would upload {len(missing)} of {len(assembly.items)} files, {size_text(size)}, to {target.uri}."
            )
        return
    with shown("push") as listener:
        done = push(assembly.items, manifest, target, listener)
    if as_json:
        print_json(document(assembly, to=target.uri, sent=done.sent, kept=done.kept, deleted=done.deleted))
        return
    print_excluded(assembly)
    click.echo(f"Pushed {done.files} files to {target.uri}: {size_text(done.sent)} sent, {size_text(done.kept)} there.")


def _push_archive(archive: Path, destination: str, target: UploadTarget, dry_run: bool, as_json: bool) -> None:
    from model_packaging.package.destination import push_archive

    with shown("push") as listener:
        done = push_archive(archive, destination, target, listener, dry_run)
    if as_json:
        print_json({"to": destination, "sent": done.sent, "kept": done.kept})
    else:
        click.echo(f"{destination}: {size_text(done.sent)} sent, {size_text(done.kept)} there.")
