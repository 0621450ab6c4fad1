"""Options and output that `pack` and `push` share."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import click

if TYPE_CHECKING:
    from handler.json_value import Json
    from model_packaging.package.assembly import Assembly, PackageInputs
    from model_packaging.package.package_manifest import PackageManifest

PackageCommand = Callable[..., Any]


def part_options(command: PackageCommand) -> PackageCommand:
    for option in (
        click.option("--revision", help="A branch, tag or commit of the hub repository."),
        click.option("--code", metavar="FOLDER", help="inference.py and what it imports."),
        click.option("--config", metavar="FILE", help="The endpoint's settings: YAML, TOML or JSON."),
        click.option(
            "--artifacts", metavar="PLACE", help="Compiled graphs: NEURON_COMPILED_ARTIFACTS, or an artifact store."
        ),
    ):
        command = option(command)
    return command


def package_inputs(
    model: str, artifacts: str | None, config: str | None, code: str | None, revision: str | None
) -> PackageInputs:
    from model_packaging.package.assembly import PackageInputs

    return PackageInputs(model, artifacts, config, code, revision)


def read_all(assembly: Assembly) -> PackageManifest:
    """Reads every file and returns the manifest. Shows a progress bar."""
    from model_packaging.package.digesting import digest_all
    from model_packaging.package.secret_scan import known_secrets

    with shown("read") as listener:
        return digest_all(assembly.items, known_secrets(os.environ), listener)


@contextmanager
def shown(description: str) -> Iterator[Callable[[int, int], None]]:
    """Shows a progress bar on standard error if that is a terminal."""
    from handler.artifacts.restore.transfer_progress import TransferProgress, progress_bar

    with progress_bar(description) as listener:
        yield lambda done, total: listener(TransferProgress(done, total))


def document(assembly: Assembly, **more: Json) -> dict[str, Json]:
    files: list[Json] = [{"path": item.path, "size": item.size} for item in assembly.items]
    return {**more, "files": files, "size": assembly.size, "excluded": dict(assembly.left)}


def print_excluded(assembly: Assembly) -> None:
    for path, reason in assembly.left.items():
        click.echo(f"excluded: {path} ({reason})", err=True)
