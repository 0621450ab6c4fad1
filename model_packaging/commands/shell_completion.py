"""`neuron-endpoint completion`."""

from __future__ import annotations

import click


@click.command("completion")
@click.argument("shell", type=click.Choice(["bash", "zsh", "fish"]))
@click.pass_context
def command(context: click.Context, shell: str) -> None:
    """Prints what makes a shell complete this command: `eval "$(neuron-endpoint completion bash)"`."""
    from click.shell_completion import get_completion_class

    made = get_completion_class(shell)
    assert made is not None
    root = context.find_root()
    click.echo(made(root.command, {}, "neuron-endpoint", "_NEURON_ENDPOINT_COMPLETE").source())
