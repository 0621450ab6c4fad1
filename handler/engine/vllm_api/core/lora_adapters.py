"""vLLM's LoRA interface. Seen on 0.16.0: vllm/v1/engine/async_llm.py and vllm/lora/request.py."""

from __future__ import annotations

from typing import Any

from vllm.lora.request import LoRARequest
from vllm.v1.engine.async_llm import AsyncLLM


def config(engine: AsyncLLM) -> tuple[int, int] | None:
    """How many adapters fit in memory, and the largest rank. None if the engine was started without LoRA."""
    found = engine.vllm_config.lora_config
    return None if found is None else (int(found.max_loras), int(found.max_lora_rank))


def request(identity: int, name: str, path: str) -> Any:
    """vLLM's reference to an adapter, for a request. `identity` must never be used for another adapter."""
    return LoRARequest(lora_name=name, lora_int_id=identity, lora_path=path)


async def add(engine: AsyncLLM, wanted: Any) -> None:
    """Loads the adapter into the engine's memory.

    :raises ValueError: vLLM rejects the adapter. The message is one line.
    """
    try:
        await engine.add_lora(wanted)
    except Exception as error:  # vLLM wraps whatever the core raised into a plain Exception
        text = str(error).partition("method failed:")[2].strip() or type(error).__name__
        raise ValueError(text.splitlines()[0].rstrip(".")[:300] if text else "vLLM gave no reason") from None


async def remove(engine: AsyncLLM, identity: int) -> None:
    await engine.remove_lora(identity)


async def pin(engine: AsyncLLM, identity: int) -> None:
    await engine.pin_lora(identity)
