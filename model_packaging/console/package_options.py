"""Options and output that `pack` and `push` share."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import wraps
from typing import TYPE_CHECKING, Any

import click

if TYPE_CHECKING:
    from handler.json_value import Json
    from model_packaging.package.assembly import Assembly
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


def read_all(assembly: Assembly) -> PackageManifest:
    """Reads every file and returns the manifest. Shows a progress bar."""
    from model_packaging.package.digesting import digest_all
    from model_packaging.package.secret_scan import known_secrets

    with shown("read") as listener:
        return digest_all(assembly.items, known_secrets(os.environ), listener)


@contextmanager
def shown(description: str) -> Iterator[Callable[[int, int], None]]:
    """Shows a progress bar on standard error if that is a terminal."""
    from handler.storage.transfer.transfer_progress import TransferProgress, progress_bar

    with progress_bar(description) as listener:
        yield lambda done, total: listener(TransferProgress(done, total))


def document(assembly: Assembly, **more: Json) -> dict[str, Json]:
    files: list[Json] = [{"path": item.path, "size": item.size} for item in assembly.items]
    return {**more, "files": files, "size": assembly.size, "excluded": dict(assembly.left)}


def print_excluded(assembly: Assembly) -> None:
    for path, reason in assembly.left.items():
        click.echo(f"excluded: {path} ({reason})", err=True)
