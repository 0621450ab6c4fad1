"""``python -m local_sagemaker``: serves one endpoint on loopback, for a container that is already running."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable
from typing import Any

import click

from local_sagemaker.gateway.container_connection import RuntimeLimits
from local_sagemaker.gateway.event_stream import Cut, parse_cut
from local_sagemaker.gateway.gateway_errors import Endpoint
from local_sagemaker.gateway.runtime_gateway import create_app
from local_sagemaker.hosting.instances.host_settings import ContainerAddress
from local_sagemaker.http_server import GatewayServer, listen
from local_sagemaker.parent import when_ended

POSITIVE = click.FloatRange(min=0, min_open=True)
SNIPPET = """\
Endpoint {name} listens on http://127.0.0.1:{port}, its container is http://{container}.

    import boto3

    runtime = boto3.client(
        "sagemaker-runtime", endpoint_url="http://127.0.0.1:{port}", region_name="us-east-1",
        aws_access_key_id="local", aws_secret_access_key="local",
    )
    reply = runtime.invoke_endpoint_with_response_stream(
        EndpointName="{name}", ContentType="application/json",
        Body=b'{{"messages": [{{"role": "user", "content": "Hello"}}], "max_tokens": 32, "stream": true}}',
    )
    for event in reply["Body"]:
        print(event["PayloadPart"]["Bytes"].decode(errors="replace"), end="", flush=True)
"""


def parsed(parse: Callable[[Any], object]) -> Callable[[click.Context, click.Parameter, Any], object]:
    """Returns an option's callback that shows the parser's own message, which click's function types drop."""

    def callback(_context: click.Context, _parameter: click.Parameter, value: Any) -> object:
        try:
            return parse(value)
        except ValueError as error:
            raise click.BadParameter(str(error)) from error

    return callback


@click.command(context_settings={"show_default": True})
@click.option("--container", required=True, callback=parsed(ContainerAddress.parse), help="Serve http://HOST:PORT.")
@click.option("--endpoint", required=True, help="Serve it under this name.")
@click.option("--port", default=8090, type=click.IntRange(0, 65535), help="Listen on this port; 0 finds a free one.")
@click.option("--cut-parts", callback=parsed(parse_cut), metavar="BYTES|random", help="Cut streams there.")
@click.option("--regular-seconds", default=60.0, type=POSITIVE, help="Limit a whole response to so many seconds.")
@click.option("--stream-seconds", default=480.0, type=POSITIVE, help="Limit a streamed response to so many seconds.")
@click.option(
    "--max-body-bytes", "body_bytes", default=25 * 1024 * 1024, help="Limit a request's body to so many bytes."
)
@click.option("--with-process", type=int, metavar="PID", help="End when this process ends.")
def main(
    container: ContainerAddress,
    endpoint: str,
    port: int,
    cut_parts: Cut,
    with_process: int | None,
    **limits: Any,
) -> None:
    """Serve one SageMaker endpoint for boto3, backed by a container that runs on this machine."""
    try:
        listener = listen(port)
    except OSError as error:
        raise click.ClickException(str(error)) from error
    ready = SNIPPET.format(name=endpoint, container=container, port=listener.getsockname()[1])
    if with_process is not None:
        when_ended(with_process, lambda: os.kill(os.getpid(), signal.SIGTERM))
    GatewayServer(
        lambda: create_app(container, Endpoint(endpoint), RuntimeLimits(**limits), cut_parts),
        listener,
        when_ready=lambda: click.echo(ready),
    ).run()


if __name__ == "__main__":
    main(prog_name="python -m local_sagemaker")
