"""What the plugin forces of the engine arguments, without an engine."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
from neuron_stand_in.nxdi.forced_arguments import force


def config(**given: Any) -> Any:
    values = {"block_size": None, "prefix_caching": False, "blocks": None, "seqs": 8, "world": 1, **given}
    return SimpleNamespace(
        model_config=SimpleNamespace(max_model_len=1000),
        cache_config=SimpleNamespace(
            block_size=values["block_size"],
            enable_prefix_caching=values["prefix_caching"],
            num_gpu_blocks_override=values["blocks"],
        ),
        scheduler_config=SimpleNamespace(
            scheduler_cls=None, enable_chunked_prefill=True, max_num_batched_tokens=2048, max_num_seqs=values["seqs"]
        ),
        parallel_config=SimpleNamespace(
            worker_cls="auto", world_size=values["world"], distributed_executor_backend="mp"
        ),
    )


def forced(environment: dict[str, str] | None = None, **given: Any) -> Any:
    made = config(**given)
    force(made, environment or {})
    return made


def test_one_process_holds_every_rank() -> None:
    assert forced(world=8).parallel_config.distributed_executor_backend == "uni"


def test_the_token_budget_is_overwritten() -> None:
    assert forced().scheduler_config.max_num_batched_tokens == 131072


@pytest.mark.parametrize(("asked", "got"), [(None, 32), (0, 32), (8, 8)])
def test_sequences_default_to_32_when_falsy(asked: int | None, got: int) -> None:
    assert forced(seqs=asked).scheduler_config.max_num_seqs == got


def test_a_block_is_the_whole_length_without_prefix_caching() -> None:
    assert forced(block_size=32).cache_config.block_size == 1000


def test_a_block_size_must_be_given_with_prefix_caching() -> None:
    with pytest.raises(AssertionError, match="block_size must be set"):
        forced(prefix_caching=True)
    assert forced(prefix_caching=True, block_size=32).cache_config.block_size == 32


def test_the_block_override_grows_by_one_and_only_once() -> None:
    made = forced(blocks=8)
    assert made.cache_config.num_gpu_blocks_override == 9
    force(made, {})  # vLLM checks a configuration again in the engine's process
    assert made.cache_config.num_gpu_blocks_override == 9


def test_chunked_prefill_is_off_and_the_scheduler_replaced() -> None:
    scheduler = forced().scheduler_config
    assert scheduler.enable_chunked_prefill is False
    assert scheduler.scheduler_cls.endswith("OnePrefillScheduler")


def test_without_the_custom_scheduler_chunked_prefill_is_on() -> None:
    off = {"DISABLE_NEURON_CUSTOM_SCHEDULER": "1"}
    scheduler = forced(off, block_size=32).scheduler_config
    assert scheduler.enable_chunked_prefill is True
    assert scheduler.scheduler_cls is None
    with pytest.raises(AssertionError):
        forced(off)  # a block size is needed
