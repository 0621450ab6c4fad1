"""`neuron-endpoint translate`."""

from __future__ import annotations

import re
import shlex
import sys
from dataclasses import replace

import click

from model_packaging.console.options import json_option, plan_options
from model_packaging.console.output import print_json


class _EitherSide(click.Command):
    """Takes options of its own from before and after the words. With `--`, everything after it is words."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        options = [option for option in self.get_params(ctx) if isinstance(option, click.Option)]
        own = {name: option.is_flag for option in options for name in option.opts}
        end = len(args)
        while end and "--" not in args:
            name, has_value, _ = args[end - 1].partition("=")
            if own.get(name) is (not has_value):
                end -= 1
            elif own.get(args[end - 2] if end > 1 else "") is False:
                end -= 2
            else:
                break
        return super().parse_args(ctx, [*args[end:], *args[:end]])


@click.command("translate", cls=_EitherSide, context_settings={"allow_interspersed_args": False})
@click.option("--yaml", "as_yaml", is_flag=True, help="Print YAML for --config, instead of an environment file.")
@click.option("--check", "checks", is_flag=True, help="Check the settings, as `neuron-endpoint check` does.")
@plan_options
@json_option
@click.argument("words", metavar="[FILE | COMMAND ...]", nargs=-1, type=click.UNPROCESSED)
def command(
    as_yaml: bool, checks: bool, instance: str | None, line: str | None, as_json: bool, words: tuple[str, ...]
) -> None:
    """Translates what starts a model elsewhere into settings of an endpoint. Nothing of it is run.

    It takes a file, the text itself or standard input: a command (`vllm serve`, `python -m vllm.entrypoints...`,
    `inference_demo`, `optimum-cli neuron serve`, `docker run -e`), a Python script with a call of LLM or
    AsyncEngineArgs, variables, or serving.properties. Options of this command stand before or after it; after `--`
    everything is the command's. Comments name the source of each setting, and what has no counterpart. The exit status
    is 1 if something could not be read.
    """
    from handler.config.finding import Severity
    from model_packaging.translation.source_text import read_text
    from model_packaging.translation.translation import translated

    found = translated(read_text(_input(words)))
    if not as_json:
        notes = [f"# {one.severity.value}: {one.setting}: {one.why}. {one.fix}".rstrip() for one in found.findings]
        click.echo("\n".join([*found.lines(as_yaml), *(() if checks else notes)]))
    if checks:
        from model_packaging.commands.check import report
        from model_packaging.console.options import examined

        examination = examined(
            {name: one.text for name, one in found.given.items()}, found.config.model, instance, line
        )
        report(replace(examination, findings=(*found.findings, *examination.findings)), as_json, found.document())
    if as_json:
        print_json(found.document())
    sys.exit(1 if any(one.severity is Severity.ERROR for one in found.findings) else 0)


def _input(words: tuple[str, ...]) -> str:
    """The text of the file, of the words or of standard input, up to a size."""
    from handler.config.loading.file_reader import LIMIT, Unreadable, fetch
    from handler.errors import SettingError

    text = words[0] if len(words) == 1 else shlex.join(words)
    try:
        body = text.encode(errors="surrogateescape") if re.search(r"[\s(=]", text) else None
        if body is None:
            body = sys.stdin.buffer.read(LIMIT + 1) if text in ("", "-") else fetch(text)
        if body is None or len(body) > LIMIT:
            raise Unreadable("there is no such file" if body is None else f"it is larger than {LIMIT:,} bytes")
        return body.decode("utf-8-sig")
    except (Unreadable, UnicodeDecodeError) as error:
        problem = str(error) if isinstance(error, Unreadable) else "it is not UTF-8"
        raise SettingError("the input", problem, "Give a file, a command, or the text.") from None
