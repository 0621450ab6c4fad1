"""The reason of a failed start names the field, and its fix fits the machine."""

from __future__ import annotations

import pydantic
import pytest

from handler.start_failure import fix_for, in_one_line


class Cache(pydantic.BaseModel):
    size: float = pydantic.Field(le=1)

    @pydantic.model_validator(mode="after")
    def _whole(self) -> Cache:
        if self.size == 0.5:
            raise ValueError("half a cache is none")
        return self


@pytest.mark.parametrize(
    ("size", "words"),
    [(90, "size: Input should be less than or equal to 1"), (0.5, "Value error, half a cache is none")],
)
def test_a_problem_that_pydantic_finds_has_its_field(size: float, words: str) -> None:
    with pytest.raises(pydantic.ValidationError) as caught:
        Cache(size=size)
    assert in_one_line(caught.value) == words


def test_memory_of_the_host_is_not_that_of_a_device() -> None:
    host = (
        "[enforce fail at alloc_cpu.cpp:127] DefaultCPUAllocator: can't allocate memory: you tried to allocate 9 bytes"
    )
    assert "VLLM_CPU_KVCACHE_SPACE" in fix_for(host)
    assert "host memory" in fix_for("OSError: [Errno 12] Cannot allocate memory")
    assert "tensor_parallel_size" in fix_for("NRT: failed to allocate 12 GB of device memory")
