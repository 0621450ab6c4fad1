"""No option takes a number that is infinite, not a number, or nonsensically negative."""

from __future__ import annotations

from collections.abc import Iterator

import click
import pytest

import sample_model
from model_packaging.cli import main
from tests.model_packaging.command import run

NONSENSE = ("nan", "inf", "-inf", "1e309", "-1")
# Its command starts a local SageMaker, whose waits may be without end.
LEFT = ("local",)


def float_options(command: click.Command, words: tuple[str, ...] = ()) -> Iterator[tuple[str, click.Parameter]]:
    if isinstance(command, click.Group):
        context = click.Context(command)
        for name in command.list_commands(context):
            child = command.get_command(context, name)
            if child is not None and name not in LEFT:
                yield from float_options(child, (*words, name))
    for parameter in command.params:
        if isinstance(parameter.type, (click.types.FloatParamType, click.FloatRange)):
            yield f"{' '.join(words)} {parameter.opts[0]}", parameter


OPTIONS = dict(float_options(main))


def test_there_are_such_options() -> None:
    assert {"size --use", "invoke --temperature", "store rm --older-than", "accuracy --tolerance"} <= OPTIONS.keys()


@pytest.mark.parametrize("value", NONSENSE)
@pytest.mark.parametrize("option", sorted(OPTIONS))
def test_no_option_takes_nonsense(option: str, value: str) -> None:
    with pytest.raises(click.BadParameter):
        OPTIONS[option].type.convert(value, OPTIONS[option], None)


@pytest.mark.parametrize("price", NONSENSE)
def test_no_price_is_nonsense(price: str) -> None:
    for words in (
        ("--instance", "inf2.xlarge", f"--price={price}"),
        ("--requests", "1", f"--price=inf2.xlarge={price}"),
    ):
        result = run("size", sample_model.path(), "--json", *words)
        assert result.exit_code == 2, result.output
        assert "--price" in result.output


@pytest.mark.parametrize("batch", ["\u0661", "1_0", "1,", "-1", "9" * 5000])
def test_a_batch_is_of_plain_digits(batch: str) -> None:
    result = run("size", sample_model.path(), "--instance", "inf2.xlarge", f"--batch={batch}")
    assert result.exit_code == 2, result.output
    assert "--batch" in result.output
