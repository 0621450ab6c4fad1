"""On a CPU with AMX, vLLM chooses instructions that its own library was built for."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.engine
# vLLM's own way into its plugins, and its own choice, under a CPU that says it has AMX.
PROGRAM = """
import torch
torch._C._cpu._is_amx_tile_supported = lambda: True
from vllm.plugins import load_general_plugins
load_general_plugins()
from handler.engine.engine_client.processes.cpu_isa import has_kernels
from vllm.v1.attention.backends.cpu_attn import _get_attn_isa
chosen = _get_attn_isa(torch.bfloat16, 128, 64)
print(has_kernels("amx"), chosen, has_kernels(chosen))
"""


@pytest.mark.vllm_016("the fixed crash is one of 0.16.0")
def test_vllm_chooses_what_its_library_has() -> None:
    environment = {**os.environ, "VLLM_LOGGING_LEVEL": "ERROR"}
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM], env=environment, capture_output=True, text=True, timeout=120, check=False
    )
    assert done.returncode == 0, done.stderr[-2000:]
    amx, chosen, there = done.stdout.split()[-3:]
    assert there == "True", done.stderr[-2000:]
    assert (chosen == "amx") == (amx == "True"), "a library that has kernels for AMX uses them"


def test_a_torch_that_has_the_question_elsewhere_is_left_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    """What a plugin raises ends vLLM (0.24, whose torch is 2.11)."""
    import torch

    from handler.engine.engine_client.processes.cpu_isa import ASKED, register

    monkeypatch.delattr(torch._C._cpu, ASKED, raising=False)
    register()
    assert not hasattr(torch._C._cpu, ASKED)


@pytest.mark.parametrize(("symbol", "loads"), [("Sleef_expf8_u10", True), ("Sleef_expf9_u10", False)])
def test_torch_checks_a_library_without_an_import_of_torch(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, symbol: str, loads: bool
) -> None:
    """torch's own check of what a compiled library needs of it."""
    from torch._inductor.cpu_vec_isa import VecAVX2

    from handler.engine.engine_client.processes.cpu_isa import register

    register()
    monkeypatch.setenv("TORCHINDUCTOR_CACHE_DIR", str(tmp_path))
    assert VecAVX2().check_build(f'extern "C" void {symbol}(); void *needed = (void *){symbol};') == loads
    assert "\nimport torch" not in VecAVX2._avx_py_load
