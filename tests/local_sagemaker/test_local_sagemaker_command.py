"""``python -m local_sagemaker``, as it is typed."""

from __future__ import annotations

import signal
import socket
import subprocess
import sys
import textwrap
import threading

import httpx
import pytest

from tests.local_sagemaker.gateway_process import GatewayProcess
from tests.local_sagemaker.scripted_container import Exchange, ScriptedContainer


def run(*options: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "local_sagemaker", *options]
    return subprocess.run(command, capture_output=True, text=True, timeout=10, check=False)


def test_the_printed_snippet_can_be_pasted(container: ScriptedContainer, gateway: GatewayProcess) -> None:
    def script(exchange: Exchange) -> None:
        exchange.begin()
        assert b'"stream": true' in exchange.body
        exchange.send(b"Hello, too")
        exchange.end()

    container.script = script
    snippet = textwrap.dedent(gateway.greeting[gateway.greeting.index("    import boto3") :])
    assert subprocess.check_output([sys.executable, "-c", snippet], text=True) == "Hello, too"


@pytest.mark.parametrize("how", [signal.SIGTERM, signal.SIGINT, signal.SIGHUP])
def test_a_stop_is_clean_and_cuts_what_is_in_flight(container: ScriptedContainer, how: signal.Signals) -> None:
    freed = threading.Event()

    def script(exchange: Exchange) -> None:
        exchange.begin()
        exchange.send(b"first")
        if exchange.peer_hung_up(within=5):
            freed.set()

    container.script = script
    gateway = GatewayProcess(container.url)
    reply = gateway.runtime.invoke_endpoint_with_response_stream(EndpointName="sample", Body=b"")
    assert next(iter(reply["Body"]))
    assert gateway.stop(how) == 0
    assert freed.wait(5)


@pytest.mark.parametrize("given", [{"Host": "evil.example"}, {"Origin": "http://evil.example"}])
def test_a_web_page_is_not_answered(
    container: ScriptedContainer, gateway: GatewayProcess, given: dict[str, str]
) -> None:
    reply = httpx.post(f"{gateway.url}/endpoints/sample/invocations", headers=given, content=b"{}")
    assert (reply.status_code, reply.headers["x-amzn-errortype"]) == (403, "AccessDeniedException")


def test_a_taken_port_is_said_plainly() -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = str(taken.getsockname()[1])
        ended = run("--container", "http://127.0.0.1:1", "--endpoint", "sample", "--port", port)
    assert ended.returncode == 1
    assert ended.stderr == f"Error: cannot listen on 127.0.0.1:{port}: Address already in use\n"


@pytest.mark.parametrize(
    ("option", "said"),
    [
        (
            ["--container", "https://127.0.0.1:8080"],
            "'https://127.0.0.1:8080' is not of the form http://HOST:PORT",
        ),
        (["--cut-parts", "0"], "'0' is neither a number of bytes above 0 nor 'random'"),
        (["--stream-seconds", "0"], "0.0 is not in the range x>0"),
    ],
)
def test_a_wrong_option_is_said_plainly(option: list[str], said: str) -> None:
    ended = run("--container", "http://127.0.0.1:1", "--endpoint", "sample", *option)
    assert ended.returncode == 2
    assert said in ended.stderr
    assert "Traceback" not in ended.stderr


def test_it_imports_neither_the_container_nor_the_handler() -> None:
    code = "import sys, local_sagemaker.__main__; print({'container', 'handler'} & sys.modules.keys())"
    assert subprocess.check_output([sys.executable, "-c", code], text=True) == "set()\n"
