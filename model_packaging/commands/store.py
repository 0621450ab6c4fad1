"""`neuron-endpoint store`."""

from __future__ import annotations

import sys
from datetime import UTC, datetime
from typing import TYPE_CHECKING

import click

from model_packaging.console.options import AMOUNT, dry_run_option, json_option
from model_packaging.console.output import print_json, size_text

if TYPE_CHECKING:
    from handler.artifacts.store.artifact_store import ArtifactStore
    from handler.artifacts.store.manifest import Manifest
    from handler.json_value import Json


@click.group("store")
def command() -> None:
    """Manages an artifact store: s3://bucket/prefix or file:///directory. KEY is the beginning of an entry's key."""


@command.command("ls")
@click.argument("store")
@json_option
def list_entries(store: str, as_json: bool) -> None:
    """Lists all entries, newest first, and the unusable ones with the reason."""
    opened = _open(store)
    entries = sorted(opened.entries(), key=lambda entry: entry.created, reverse=True)
    unusable = [error.message for error in opened.unusable()]
    if as_json:
        print_json({"entries": [_document(opened, entry) for entry in entries], "unusable": [*unusable]})
        return
    from model_packaging.console.tables import plain_table, show

    rows = [
        (
            entry.key[:16],
            entry.kind,
            f"{datetime.fromtimestamp(entry.created, UTC):%Y-%m-%d %H:%M}",
            size_text(_size(entry)),
            f"{entry.compile_seconds:.0f} s" if entry.compile_seconds else "-",
            " ".join(
                f"{name}={entry.fields[name]}" for name in ("platform", "tensor_parallel_size") if name in entry.fields
            ),
            "pinned" if opened.pinned(entry.key, entry.kind) else "",
        )
        for entry in entries
    ]
    show(plain_table(("key", "kind", "made", "size", "compiled in", "for", ""), rows), "\n".join(unusable))


@command.command()
@click.argument("store")
@click.argument("key", required=False)
@json_option
def verify(store: str, key: str | None, as_json: bool) -> None:
    """Reads every byte of an entry, or of all entries. Exit status 1 if a file is damaged."""
    opened = _open(store)
    entries = _selected(opened, key) if key else [(entry.kind, entry.key) for entry in opened.entries()]
    faults: list[dict[str, str]] = [
        {"key": name, "kind": kind, "path": damage.path, "problem": damage.problem}
        for kind, name in entries
        for damage in opened.verify(name, kind)
    ]
    unusable = [] if key else [error.message for error in opened.unusable()]
    if as_json:
        print_json({"entries": len(entries), "faults": [{**fault} for fault in faults], "unusable": [*unusable]})
    else:
        damaged = [f"{fault['kind']} {fault['key'][:16]}: {fault['path']}: {fault['problem']}" for fault in faults]
        total = f"{len(entries)} entries read, {len(faults)} files damaged."
        fix = (
            ["Delete the damaged entries with `store rm --damaged`: the next start publishes them again."]
            if faults
            else []
        )
        click.echo("\n".join([*damaged, *unusable, total, *fix]))
    sys.exit(1 if faults or unusable else 0)


@command.command()
@click.argument("store")
@click.argument("key")
def pin(store: str, key: str) -> None:
    """Protects an entry from deletion."""
    opened = _open(store)
    for kind, name in _selected(opened, key):
        opened.pin(name, kind)
        click.echo(f"Pinned {kind} {name}.")


@command.command()
@click.argument("store")
@click.argument("key")
def unpin(store: str, key: str) -> None:
    """Removes the protection from deletion."""
    opened = _open(store)
    for kind, name in _selected(opened, key):
        opened.unpin(name, kind)
        click.echo(f"Unpinned {kind} {name}.")


@command.command("rm")
@click.argument("store")
@click.argument("key", required=False)
@click.option("--older-than", type=AMOUNT, metavar="DAYS", help="Delete entries that are older, instead of a KEY.")
@click.option(
    "--keep", type=click.IntRange(min=0), help="Delete all but so many newest entries of each kind, instead of a KEY."
)
@click.option("--damaged", is_flag=True, help="Read every byte of KEY's entry first, and delete its damaged objects.")
@dry_run_option
def remove(
    store: str, key: str | None, older_than: float | None, keep: int | None, damaged: bool, dry_run: bool
) -> None:
    """Deletes entries that are not pinned. A later `rm` deletes objects that no entry refers to any more.

    With --older-than and --keep, an entry is deleted if it is older and not among the newest.

    Of a damaged entry, use --damaged: the next start uploads only the objects that the store does not have.
    """
    if bool(key) == (older_than is not None or keep is not None):
        raise click.UsageError("Give a KEY, or --older-than or --keep.")
    if damaged and not key:
        raise click.UsageError("--damaged needs a KEY.")
    from handler.artifacts.store.garbage_collection import expired

    opened = _open(store)
    seconds = None if older_than is None else older_than * 86_400
    if key:
        selected = _selected(opened, key)
    else:
        selected = [(kind, name) for kind, name, _ in expired(opened.objects, older_than=seconds, keep=keep)]
    pinned = False
    for kind, name in selected:
        # Damaged objects go before their entry, so that `rm` can be repeated after a failure.
        if damaged and not dry_run and not opened.pinned(name, kind):
            click.echo(f"Deleted damaged objects of {kind} {name}: {opened.delete_damaged(name, kind)}.")
        gone = not dry_run and opened.delete(name, kind)
        pinned = pinned or not (gone or dry_run)
        click.echo(f"{'Would delete' if dry_run else 'Deleted' if gone else 'Pinned, and so kept:'} {kind} {name}.")
    if not dry_run:
        done = opened.collect()
        click.echo(
            f"{done.deleted} objects deleted ({size_text(done.deleted_bytes)}), {done.marked} marked for deletion."
        )
    sys.exit(1 if pinned else 0)


def _open(uri: str) -> ArtifactStore:
    from handler.artifacts.store.artifact_store import ArtifactStore
    from handler.errors import NoDirectory

    store = ArtifactStore.open(uri, setting="STORE")
    directory = getattr(store.objects, "root", None)
    if directory is not None and not directory.is_dir():
        raise NoDirectory("STORE", directory, "Give the directory of a store.")
    return store


def _selected(store: ArtifactStore, key: str) -> list[tuple[str, str]]:
    """Returns kind and key of the entries whose key begins with `key`: the graph and the weights, also unusable ones.

    :raises SettingError: no key begins so, or several keys do.
    """
    from handler.errors import SettingError

    entries = [(kind, name) for kind, name in store.names() if name.startswith(key)]
    if not entries:
        raise SettingError("KEY", f"no entry's key begins with '{key[:64]}'", "`neuron-endpoint store ls` has them.")
    if len({name for _, name in entries}) > 1:
        raise SettingError("KEY", f"{len(entries)} keys begin with '{key[:64]}'", "Give more of it.")
    return entries


def _size(entry: Manifest) -> int:
    return sum(file.size for file in entry.files)


def _document(store: ArtifactStore, entry: Manifest) -> dict[str, Json]:
    return {
        "key": entry.key,
        "kind": entry.kind,
        "created": entry.created,
        "compile_seconds": entry.compile_seconds,
        "size": _size(entry),
        "files": len(entry.files),
        "pinned": store.pinned(entry.key, entry.kind),
        "fields": dict(entry.fields),
    }
