"""Every `neuron-endpoint` line of the documentation is one that the command takes: names, options, arguments."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterable, Iterator
from pathlib import Path

import click
import pytest

from model_packaging import local_endpoint as local
from model_packaging.cli import COMMANDS, main

ROOT = Path(__file__).parents[2]
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md")), ROOT / "recipes" / "README.md"]
BLOCK = re.compile(r"^```sh\n(.*?)^```", re.MULTILINE | re.DOTALL)
INLINE = re.compile(r"`(neuron-endpoint [^`\n]+)`")
OPTION = re.compile(r"`(--[a-z][-a-z]+)")


def lines(page: Path) -> Iterator[str]:
    text = page.read_text()
    for block in BLOCK.findall(text):
        yield from block.replace("\\\n", " ").splitlines()
    yield from INLINE.findall(text)


def commands(page: Path) -> list[list[str]]:
    """The words after `neuron-endpoint`, without what the shell does with them."""
    found = []
    for line in lines(page):
        for text in re.findall(r"(?:^|[\s\"(!])neuron-endpoint +([^\"\)|>#]*(?:\"[^\"$]*\"[^\"\)|>#]*)*)", line):
            found.append(shlex.split(text.replace("...", "x")))
    return found


def refusal(words: list[str]) -> str | None:
    """Why click would not take them; None where it does. Nothing is run."""
    group: click.Command = main
    context = click.Context(main, info_name="neuron-endpoint")
    while isinstance(group, click.Group):
        if not words:
            return None
        name, *words = words
        found = group.get_command(context, name)
        if found is None:
            return f"there is no command {name}"
        group = found
    if not words:
        return None  # named, not shown
    try:
        group.make_context(group.name, list(words))
    except click.UsageError as error:
        return error.format_message()
    except click.exceptions.Exit:
        return None
    return None


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_every_documented_command_is_taken(page: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(local, "use_local", lambda: None)
    wrong = {shlex.join(words): why for words in commands(page) if (why := refusal(words))}
    assert wrong == {}


def test_the_search_finds_them_and_what_is_wrong(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text(
        '```sh\neval "$(neuron-endpoint local up)"\nneuron-endpoint deploy x --instnce y  # z\n```\n'
        "`neuron-endpoint lgs x`\n"
    )
    assert commands(page) == [["local", "up"], ["deploy", "x", "--instnce", "y"], ["lgs", "x"]]
    assert [bool(refusal(words)) for words in commands(page)] == [False, True, True]
    assert sum(len(commands(each)) for each in PAGES) > 40


def options(names: Iterable[str] = COMMANDS) -> Iterator[click.Option]:
    context = click.Context(main)
    for name in names:
        command = main.get_command(context, name)
        assert command is not None
        inner = [command, *(command.commands.values() if isinstance(command, click.Group) else ())]
        yield from (parameter for one in inner for parameter in one.params if isinstance(parameter, click.Option))


def test_every_option_that_the_pages_name_is_one_of_a_command() -> None:
    known = {"--help"} | {option for each in options() for option in (*each.opts, *each.secondary_opts)}
    for page in ("packaging.md", "kubernetes.md", "scale.md", "tuning.md", "predictions.md", "troubleshooting.md"):
        assert set(OPTION.findall((ROOT / "docs" / page).read_text())) - known == set(), page
