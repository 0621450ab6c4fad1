"""`neuron-endpoint push`."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from model_packaging.console.options import dry_run_option, json_option, local_only_option
from model_packaging.console.output import print_json, size_text
from model_packaging.console.package_options import document, input_options, print_excluded, read_all, shown

if TYPE_CHECKING:
    from model_packaging.package.assembly import PackageInputs


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

    MODEL is an input of `pack`, or a folder that it wrote. After an interruption, run the same command again.
    """
    from model_packaging.package.assembly import assemble
    from model_packaging.package.upload import UploadTarget, compare, push

    target = UploadTarget.parse(destination, kms_key, replace)
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
