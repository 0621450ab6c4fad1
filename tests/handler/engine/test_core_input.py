"""What is sent to the core arrives whole and in its order, whether the socket takes it at once or not."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import Any

import pytest
import zmq
import zmq.asyncio

from handler.engine.v1.tokens.core_input import CoreInput

CORE, CALLS = b"\x00\x00", 400


class Client:
    """The part of vLLM's client (0.29.0, `AsyncMPClient`) that sends to its core."""

    def __init__(self, socket: zmq.asyncio.Socket) -> None:
        self.resources = SimpleNamespace(input_socket=socket, engine_dead=False)
        self.by_vllm = 0

    def ensure_alive(self) -> None:
        if self.resources.engine_dead:
            raise ConnectionError

    def _send_input_message(self, message: Any, core: bytes) -> Any:
        self.ensure_alive()
        self.by_vllm += 1
        return self.resources.input_socket.send_multipart((core, *message), copy=False)


async def sent(room: int, frames: int) -> tuple[list[list[bytes]], int]:
    """The messages that a core gets, and how many of them vLLM's own function has sent.

    :param room: messages that wait for the core, at most.
    """
    context = zmq.asyncio.Context()
    input_socket = context.socket(zmq.ROUTER)
    core: zmq.Socket[bytes] = zmq.Context.shadow(context).socket(zmq.DEALER)
    for socket in (input_socket, core):
        socket.setsockopt(zmq.SNDHWM, room)
        socket.setsockopt(zmq.RCVHWM, room)
        socket.setsockopt(zmq.LINGER, 0)
    input_socket.setsockopt(zmq.ROUTER_MANDATORY, 1)  # a full core blocks, as vLLM's does
    core.setsockopt(zmq.IDENTITY, CORE)
    try:
        core.connect(f"tcp://127.0.0.1:{input_socket.bind_to_random_port('tcp://127.0.0.1')}")
        core.send(b"ready")
        await input_socket.recv_multipart()
        client: Any = Client(input_socket)
        CoreInput(client)
        padding = [b"tensor"] * (frames - 2)
        sends = [client._send_input_message((b"\x00", str(n).encode() * 999, *padding), CORE) for n in range(CALLS)]
        arrived = list[list[bytes]]()
        while len(arrived) < CALLS:
            assert await asyncio.to_thread(core.poll, 10_000), "a message is lost"
            arrived.append(core.recv_multipart())
            await asyncio.sleep(0)
        await asyncio.gather(*map(asyncio.ensure_future, sends))
        return arrived, client.by_vllm
    finally:
        core.close()
        input_socket.close()
        context.term()


@pytest.mark.parametrize("room", [1, 10_000])
@pytest.mark.parametrize("frames", [2, 3])
def test_messages_arrive_in_their_order(room: int, frames: int) -> None:
    arrived, by_vllm = asyncio.run(asyncio.wait_for(sent(room, frames), 60))
    assert [message[1] for message in arrived] == [str(n).encode() * 999 for n in range(CALLS)]
    assert {len(message) for message in arrived} == {frames}
    if frames == 2:
        assert (by_vllm > 0) is (room == 1), "vLLM's own function sends what the socket does not take at once"


def test_nothing_is_sent_to_a_dead_core() -> None:
    async def send() -> None:
        with zmq.asyncio.Context() as context, context.socket(zmq.ROUTER) as socket:
            client: Any = Client(socket)
            CoreInput(client)
            client.resources.engine_dead = True
            client._send_input_message((b"\x00", b"x"), CORE)

    with pytest.raises(ConnectionError):
        asyncio.run(send())
