"""`neuron-endpoint generate`."""

from __future__ import annotations

import json
import tempfile
import time
from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import partial
from pathlib import Path
from threading import Thread
from typing import TYPE_CHECKING, Final

import click

from model_packaging.console.options import plan_options, settings_options
from model_packaging.console.output import require_writable

if TYPE_CHECKING:
    from handler.config.endpoint_config import EndpointConfig
    from handler.engine.api_routes import Route

POLL: Final = 0.2  # seconds
FILE: Final = click.Path(dir_okay=False, path_type=Path)


@click.command("generate")
@click.argument("model")
@click.option("--prompts", required=True, type=FILE, help="Read prompts: texts, bodies or lines of a batch.")
@click.option("--output", required=True, type=FILE, help="Write the replies to this file.")
@settings_options
@plan_options
def command(
    model: str, prompts: Path, output: Path, environ: Mapping[str, str], instance: str | None, line: str | None
) -> None:
    """Answers the prompts of a file on this machine, without a server.

    The engine is started as an endpoint's is: with the same settings, checks and artifacts. The exit status is 1 if a
    prompt has no answer. After Ctrl-C, the file has the replies so far.
    """
    from rich.console import Console
    from rich.progress import Progress

    from handler.config.loading.config_loader import load
    from model_packaging.examination_report import named

    if not prompts.is_file():
        raise click.BadParameter(f"There is no file {prompts}.", param_hint="--prompts")
    content, endpoint = batch_lines(prompts.read_bytes())
    config = named(load(environ, model=model), instance, line)
    require_writable("--output", output)
    with Progress(console=Console(stderr=True)) as progress:
        show = partial(progress.update, progress.add_task("start", total=None))
        failed = _answer(replace(config, slot_share=1.0), content, endpoint, output, show)
    if failed:
        raise click.ClickException(f"Without an answer: {', '.join(failed[:10])}.")


def batch_lines(text: bytes) -> tuple[bytes, Route]:
    """The lines of a batch, and its endpoint: that of the first line.

    :raises BadParameter: a line cannot be read.
    """
    from handler.batches.batch_input import ROUTES, read_lines
    from handler.engine.api_routes import Route
    from handler.errors import InvalidField

    rows = [_row(number, line) for number, line in enumerate(text.split(b"\n"), 1)]
    first = next((row for row in rows if row.strip()), b"")
    endpoint = next((url for url in ROUTES if url == _url(first)), Route.COMPLETIONS)
    content = b"\n".join(rows)
    try:
        for _ in read_lines(content, endpoint):  # the first one that cannot be used is an error
            pass
    except InvalidField as error:
        raise click.BadParameter(error.problem, param_hint="--prompts") from None
    return content, endpoint


def _url(row: bytes) -> object:
    try:
        document = json.loads(row)
    except (ValueError, RecursionError):
        return None
    return document.get("url") if isinstance(document, dict) else None


def _row(number: int, text: bytes) -> bytes:
    """The line of a batch that a line of the file means. `read_lines` names one that cannot be read."""
    from handler.engine.api_routes import Route

    try:
        document = json.loads(text)
    except (ValueError, RecursionError):
        return text
    if isinstance(document, dict) and "body" in document:
        return text
    body = document if isinstance(document, dict) else {"prompt": document}
    url = Route.CHAT if "messages" in body else Route.COMPLETIONS
    return json.dumps({"custom_id": str(number), "method": "POST", "url": url, "body": body}).encode()


def _answer(
    config: EndpointConfig, content: bytes, endpoint: Route, output: Path, show: Callable[..., None]
) -> list[str]:
    """Writes the replies, also if it is interrupted.

    :return: the prompts that have no answer, by their `custom_id`.
    :raises ClickException: the engine did not start.
    """
    from handler.batches.batch_input import decoded_row, read_lines, succeeded_row
    from handler.batches.batches import WINDOW, Batches, BatchFields
    from handler.engine.event_loop import LoopThread
    from handler.startup.admission import Admission
    from handler.startup.lifecycle import Lifecycle, ServingStatus
    from handler.startup.serving_state import ServingState
    from handler.startup.start import start

    state = ServingState(config, LoopThread.start("generate"), Lifecycle(), Admission(1))
    starting = Thread(target=start, args=(state,), daemon=True)
    starting.start()
    try:
        while starting.is_alive():
            status = state.lifecycle.status
            show(description=status.stage, completed=status.done, total=status.total or None)
            starting.join(POLL)
        if state.lifecycle.status.state is not ServingStatus.READY:
            raise click.ClickException(state.lifecycle.status.reason)
        with tempfile.TemporaryDirectory(prefix="neuron-endpoint-") as directory:
            engine, batches = state.ready_engine(), Batches(state, directory, alone=True)
            file = batches.add_file("prompts.jsonl", "batch", content).id
            batch = batches.create(BatchFields(input_file_id=file, endpoint=endpoint, completion_window=WINDOW))
            batches.start()
            try:
                while not batch.status.ended and not engine.dead():
                    time.sleep(POLL)
                    batch = batches.get(batch.id)
                    counts = batch.request_counts
                    show(description="answer", completed=counts.completed + counts.failed, total=counts.total)
            finally:
                state.lifecycle.drain()
                replies = {decoded_row(row).custom_id: row for row in batches.store.replies(batch.id)}
                rows = {line.custom_id: replies.get(line.custom_id) for line in read_lines(content, endpoint)}
                output.write_bytes(b"".join(row + b"\n" for row in rows.values() if row is not None))
    finally:
        if state.engine is not None:
            state.engine.stop()
    return [name for name, row in rows.items() if row is None or not succeeded_row(decoded_row(row))]
