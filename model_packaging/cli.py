"""`neuron-endpoint`: from a model to an endpoint, and back to nothing.

Exit status:

    0    done
    1    it would fail, or did: a setting, a package that does not verify, a deployment that failed
    2    usage
    3    a service refused or could not be reached: credentials, permissions, the network
    4    the endpoint answered a request with an error
    130  interrupted (Ctrl-C); what was begun can be run again
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Sequence
from importlib import import_module
from typing import Any

import click

FAILED, USAGE, SERVICE, ANSWERED, INTERRUPTED = 1, 2, 3, 4, 130

# In the order of a model's way. Each is `commands/<module>.py` with a function `command`; none is imported before it is
# used, so that `check` and shell completion stay fast.
COMMANDS = {
    "check": "Whether an endpoint with these settings would start.",
    "plan": "The engine arguments and environment of these settings.",
    "config": "The settings of an endpoint.",
    "compile": "Compiles a model ahead: here, or as a training job.",
    "pack": "Puts model, graphs, settings and code into a folder or archive.",
    "push": "Uploads a package to S3: what is there already is skipped.",
    "inspect": "What a package holds.",
    "verify": "Whether a package is whole, file by file.",
    "invoke": "Asks an endpoint: streamed, whole or asynchronous.",
    "deploy": "Makes an endpoint of a package, or brings it up to date.",
    "node": "A further node of an engine that spans several.",
    "kubernetes": "Prints manifests for a cluster with the Neuron device plugin.",
    "logs": "What an endpoint's containers have written.",
    "delete": "Removes everything that deploy made, and nothing else.",
    "local": "A SageMaker on this machine: up, down, status, chaos.",
    "bench": "A small load on an endpoint: time to the first token, tokens a second.",
    "capacity": "Instances, cost and first limit of a load: arithmetic.",
    "store": "An artifact store's entries: list, verify, pin, delete.",
    "completion": "Prints what makes a shell complete this command.",
}


class Commands(click.Group):
    """The commands, imported when used; and the exit status of whatever ends one."""

    def list_commands(self, context: click.Context) -> list[str]:
        return list(COMMANDS)

    def get_command(self, context: click.Context, name: str) -> click.Command | None:
        if name not in COMMANDS:
            return None
        found: click.Command = import_module(f"model_packaging.commands.{name}").command
        return found

    def format_commands(self, context: click.Context, formatter: click.HelpFormatter) -> None:
        with formatter.section("Commands"):
            formatter.write_dl(list(COMMANDS.items()))

    def main(  # type: ignore[override]
        self, args: Sequence[str] | None = None, prog_name: str | None = None, **more: Any
    ) -> Any:
        if not more.pop("standalone_mode", True):
            return super().main(args, prog_name, standalone_mode=False, **more)
        sys.exit(status_of(lambda: super(Commands, self).main(args, prog_name, standalone_mode=False, **more)))


def status_of(run: Callable[[], Any]) -> int:
    """Runs it, tells its error in a line or two on standard error, and gives the exit status."""
    from handler.errors import EndpointError

    try:
        code = run()
    except click.exceptions.Abort:
        click.echo("Interrupted.", err=True)
        return INTERRUPTED
    except click.ClickException as error:
        error.show()
        return error.exit_code
    except BrokenPipeError:
        # Whoever read our output has left (`| head`). What is buffered must not fail again when the interpreter ends.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0
    except EndpointError as error:
        click.echo(f"Error: {error.message}", err=True)
        return _status(error)
    except Exception as error:
        told = _told_by_aws(error)
        if told is None:
            raise
        click.echo(f"Error: {told}", err=True)
        return SERVICE
    return code if isinstance(code, int) else 0


def _status(error: Exception) -> int:
    from handler.storage.storage_errors import AccessDenied, BucketMissing, CredentialsRefused, StoreUnavailable

    return SERVICE if isinstance(error, (AccessDenied, BucketMissing, CredentialsRefused, StoreUnavailable)) else FAILED


def _told_by_aws(error: Exception) -> str | None:
    """What botocore raised, with the fix where it is known; None for anything else."""
    from botocore.exceptions import BotoCoreError, ClientError, NoCredentialsError, NoRegionError

    if isinstance(error, NoCredentialsError):
        return "there are no AWS credentials. Set AWS_PROFILE, or AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY."
    if isinstance(error, NoRegionError):
        return "no AWS region is known. Set AWS_DEFAULT_REGION, or give --region."
    if isinstance(error, ClientError):
        about = error.response.get("Error", {})
        return f"{error.operation_name} was refused ({about.get('Code')}): {about.get('Message')}"
    return f"{error}" if isinstance(error, BotoCoreError) else None


@click.group(cls=Commands, context_settings={"help_option_names": ["-h", "--help"]})
def main() -> None:
    """SageMaker endpoints for language models on AWS Inferentia and Trainium.

    Exit status: 0 done; 1 it would fail, or did; 2 usage; 3 a service refused or is out of reach; 4 the endpoint
    answered with an error; 130 interrupted.
    """
