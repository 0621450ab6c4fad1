"""Prints JSON, findings, sizes and progress."""

from __future__ import annotations

import json
import os
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, NoReturn

import click

if TYPE_CHECKING:
    from handler.json_value import Json
    from handler.neuron.planning.examination import Examination

# The exit status when the endpoint has answered a request with an error.
REQUEST_FAILED = 4


def print_json(value: Mapping[str, Json]) -> None:
    click.echo(json.dumps(value, indent=2, ensure_ascii=False))


def require_writable(option: str, path: Path) -> None:
    """Checks that a file can be written, before the work whose result it gets.

    :raises SettingError: it cannot.
    """
    from handler.errors import NoDirectory, SettingError

    directory = path.absolute().parent
    if not directory.is_dir():
        raise NoDirectory(option, directory, "Make it first.")
    if not os.access(path if path.exists() else directory, os.W_OK, effective_ids=True):
        raise SettingError(option, f"this user may not write {str(path)[:200]}", "Give another path.")


def refuse(found: Examination, as_json: bool, *notes: str) -> NoReturn:
    """Prints the findings and the notes (the notes not with --json), and exits with status 1."""
    if as_json:
        print_json(found.document())
    else:
        from model_packaging.console.tables import findings_table, show

        show(findings_table(found.findings), *notes)
    sys.exit(1)


def size_text(size: float) -> str:
    """Formats bytes for people, in powers of ten, as S3 bills them."""
    for unit in ("B", "kB", "MB", "GB"):
        if size < 1000:
            return f"{size:.0f} {unit}" if unit == "B" else f"{size:.1f} {unit}"
        size /= 1000
    return f"{size:.1f} TB"


@contextmanager
def request_bar(description: str, total: int) -> Iterator[Callable[[int, float], None]]:
    """Shows requests as they are answered, with tokens per second, on standard error if that is a terminal."""
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

    title, rate, left = map(TextColumn, ("{task.description}", "{task.fields[rate]:.0f} tokens/s,", "left"))
    columns = (title, BarColumn(), MofNCompleteColumn(), rate, TimeRemainingColumn(), left)
    console = Console(stderr=True)
    with Progress(*columns, console=console, disable=not console.is_terminal) as bar:
        task = bar.add_task(description, total=total, rate=0.0)
        yield lambda done, tokens: bar.update(task, completed=done, rate=tokens)


@contextmanager
def lines() -> Iterator[Callable[[str], None]]:
    """Shows a slow operation: a spinner with the latest line on a terminal, otherwise plain lines."""
    from rich.console import Console
    from rich.markup import escape

    from handler.errors.base import one_line

    console = Console(stderr=True)
    began = time.monotonic()

    def stamped(text: str) -> str:
        return f"[{time.monotonic() - began:6.0f} s] {one_line(text)}"

    if not console.is_terminal:
        yield lambda text: click.echo(stamped(text), err=True)
        return
    with console.status("") as status:

        def tell(text: str) -> None:
            console.print(escape(stamped(text)), highlight=False)
            status.update(escape(text))

        yield tell
