"""Shows the progress of a slow operation: a spinner with the latest line on a terminal, otherwise plain lines."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import click


@contextmanager
def lines() -> Iterator[Callable[[str], None]]:
    from rich.console import Console
    from rich.markup import escape

    console = Console(stderr=True)
    began = time.monotonic()

    def stamped(text: str) -> str:
        return f"[{time.monotonic() - began:6.0f} s] {text}"

    if not console.is_terminal:
        yield lambda text: click.echo(stamped(text), err=True)
        return
    with console.status("") as status:

        def tell(text: str) -> None:
            console.print(escape(stamped(text)), highlight=False)
            status.update(escape(text))

        yield tell
