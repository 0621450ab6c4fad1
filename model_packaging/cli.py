"""The command line `neuron-endpoint`: packages a model, deploys it as an endpoint, calls it and deletes it.

docs/packaging.md has the table of exit statuses.
"""

from __future__ import annotations

import errno
import os
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from difflib import get_close_matches
from importlib import import_module
from typing import Any

import click

FAILED, USAGE, SERVICE, INTERRUPTED = 1, 2, 3, 130
NO_ROOM = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)  # of a write, which names no file

# In the order in which a user meets them. Each is the function `command` of `commands/<name>.py`, unless MODULES names
# another place. None is imported before it is used, so that `check` and shell completion stay fast.
COMMANDS = {
    "check": "Tell whether an endpoint with these settings would start.",
    "plan": "Show the engine arguments and the environment that result from the settings.",
    "versions": "List vLLM and the Neuron packages that are installed, and the line that they mean.",
    "config": "Show the settings of an endpoint.",
    "translate": "Translate what starts a model elsewhere (vllm serve, a script, docker run) into settings.",
    "migrate": "Translate settings of NxD Inference for the native plugin.",
    "compile": "Compile a model ahead of time: on this machine, or in a training job.",
    "generate": "Answer the prompts of a file on this machine, without a server.",
    "pack": "Write model, compiled graphs, settings and code to a folder or archive.",
    "push": "Upload a package to S3. Files that are there already are skipped.",
    "inspect": "Show what a package contains.",
    "verify": "Check every file of a package against its digest.",
    "invoke": "Send a request to an endpoint: streamed, whole or asynchronous.",
    "deploy": "Create an endpoint from a package, or update it.",
    "node": "Run a further node of an engine that spans several nodes.",
    "kubernetes": "Print manifests for a cluster with the Neuron device plugin.",
    "logs": "Show the logs of an endpoint's containers.",
    "delete": "Delete everything that deploy created, and nothing else.",
    "local": "SageMaker on this machine: up, down, status.",
    "bench": "Send a small load to an endpoint: time to the first token, tokens per second.",
    "size": "Predict rates and cost on an instance, find instances for a load, or choose buckets for a log.",
    "accuracy": "Compare an endpoint's greedy tokens with those of a reference run.",
    "store": "List, verify, pin and delete the entries of an artifact store.",
    "completion": "Print the shell code that completes this command.",
}
MODULES = {
    "check": ("model_packaging.commands.check", "check_command"),
    "plan": ("model_packaging.commands.check", "plan_command"),
    **{name: ("model_packaging.commands.package", f"{name}_command") for name in ("pack", "push", "inspect", "verify")},
    "generate": ("model_packaging.generate", "command"),
    "local": ("local_sagemaker.cli", "local"),
    "completion": (__name__, "completion"),
}


class Commands(click.Group):
    """Imports a command when it is used, and turns whatever ends a command into an exit status."""

    def list_commands(self, context: click.Context) -> list[str]:
        return list(COMMANDS)

    def get_command(self, context: click.Context, name: str) -> click.Command | None:
        if name not in COMMANDS:
            return None
        module, attribute = MODULES.get(name, (f"model_packaging.commands.{name}", "command"))
        found: click.Command = getattr(import_module(module), attribute)
        return found

    def resolve_command(
        self, context: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        name = args[0]
        if name not in COMMANDS and not name.startswith("-"):
            near = get_close_matches(name, COMMANDS, n=1)
            hint = f" Did you mean '{near[0]}'?" if near else ""
            context.fail(f"No such command '{name[:40]}'.{hint}")
        return super().resolve_command(context, args)

    def format_commands(self, context: click.Context, formatter: click.HelpFormatter) -> None:
        with formatter.section("Commands"):
            formatter.write_dl(list(COMMANDS.items()))

    def make_context(self, *args: Any, **more: Any) -> click.Context:  # prints --help and --version
        with _no_reader():
            return super().make_context(*args, **more)

    def invoke(self, ctx: click.Context) -> Any:
        with _no_reader():
            return super().invoke(ctx)

    def main(  # type: ignore[override]
        self, args: Sequence[str] | None = None, prog_name: str | None = None, **more: Any
    ) -> Any:
        if not more.pop("standalone_mode", True):
            return super().main(args, prog_name, standalone_mode=False, **more)
        sys.exit(status_of(lambda: super(Commands, self).main(args, prog_name, standalone_mode=False, **more)))


def status_of(run: Callable[[], Any]) -> int:
    """Runs a command and returns its exit status. An error is printed to standard error in a line or two."""
    from handler.errors import EndpointError, SettingError
    from handler.storage.storage_errors import (
        AccessDenied,
        BucketMissing,
        CredentialsRefused,
        StoreUnavailable,
        StoreUnusable,
    )

    try:
        code = run()
    except click.exceptions.Abort:
        click.echo("Interrupted.", err=True)
        return INTERRUPTED
    except click.ClickException as error:
        error.show()
        return error.exit_code
    except EndpointError as error:
        click.echo(f"Error: {error.message}", err=True)
        if isinstance(error, SettingError) and error.setting.startswith("--"):
            return USAGE
        service = (AccessDenied, BucketMissing, CredentialsRefused, StoreUnavailable, StoreUnusable)
        return SERVICE if isinstance(error, service) else FAILED
    except Exception as error:
        message, status = _aws_message(error), SERVICE  # some of botocore's errors are an OSError, too
        if message is None and isinstance(error, OSError):
            message, status = _file_message(error), FAILED
        if message is None:
            raise
        click.echo(f"Error: {message}", err=True)
        return status
    return code if isinstance(code, int) else 0


@contextmanager
def _no_reader() -> Iterator[None]:
    """The reader of the output may close it (`| head`), which is no failure. click would exit with status 1."""
    try:
        yield
    except BrokenPipeError:
        _drop_output()
        raise click.exceptions.Exit(0) from None


def _drop_output() -> None:
    """Lets the buffered rest of the output not fail when the interpreter ends."""
    if sys.stdout is not None:  # it is, where the caller has closed it
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def _file_message(error: OSError) -> str | None:
    """The message of an error about a file or a full disk, with the fix; None for any other error."""
    if error.filename is not None:
        return f"{error.filename}: {error.strerror}. Give another path."
    if error.errno not in NO_ROOM:
        return None
    _drop_output()
    return f"{error.strerror}. Free space where this command writes, or write elsewhere."


def _aws_message(error: Exception) -> str | None:
    """The message of a botocore error, with the fix where it is known; None for any other error."""
    from botocore.exceptions import BotoCoreError, ClientError, NoCredentialsError, NoRegionError

    from handler.storage.storage_errors import CREDENTIALS

    if isinstance(error, NoCredentialsError):
        return f"there are no AWS credentials. {CREDENTIALS}"
    if isinstance(error, NoRegionError):
        return "no AWS region is known. Set AWS_DEFAULT_REGION, or give --region."
    if isinstance(error, ClientError):
        about = error.response.get("Error", {})
        return f"{error.operation_name} was refused ({about.get('Code')}): {about.get('Message')}"
    return f"{error}" if isinstance(error, BotoCoreError) else None


@click.group(cls=Commands, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(package_name="neuron-endpoint", message="%(package)s %(version)s")
def main() -> None:
    """SageMaker endpoints for language models on AWS Inferentia and Trainium.

    Exit status: 0 success; 1 failure; 2 wrong usage; 3 a service refused the request or could not be reached; 4 the
    endpoint answered with an error; 5 `check` could not look at everything; 130 interrupted.
    """


@click.command("completion")
@click.argument("shell", type=click.Choice(["bash", "zsh", "fish"]))
@click.pass_context
def completion(context: click.Context, shell: str) -> None:
    """Print the shell code that completes this command: `eval "$(neuron-endpoint completion bash)"`."""
    from click.shell_completion import get_completion_class

    completion_class = get_completion_class(shell)
    assert completion_class is not None
    root = context.find_root()
    click.echo(completion_class(root.command, {}, "neuron-endpoint", "_NEURON_ENDPOINT_COMPLETE").source())
