"""Installed for one process, by its environment: no virtual environment is changed.

`pip install --no-deps -e tests/neuron_stand_in` does the same for a whole one.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path

import neuron_stand_in

ENTRY_POINTS = """\
[vllm.platform_plugins]
neuron = neuron_stand_in:register
[vllm.general_plugins]
neuron_stand_in = neuron_stand_in:wait_without_spinning
"""
METADATA = "Metadata-Version: 2.1\nName: neuron-stand-in\nVersion: 0.1.0\n"


def installed(directory: Path, environment: Mapping[str, str] = os.environ) -> dict[str, str]:
    """PYTHONPATH for a process that is to find the package and its entry points, which are written to `directory`.

    Set NEURON_STAND_IN beside it to switch it on.
    """
    metadata = directory / "neuron_stand_in-0.1.0.dist-info"
    metadata.mkdir(parents=True, exist_ok=True)
    (metadata / "METADATA").write_text(METADATA)
    (metadata / "entry_points.txt").write_text(ENTRY_POINTS)
    package = Path(neuron_stand_in.__file__).parents[1]
    earlier = environment.get("PYTHONPATH")
    return {"PYTHONPATH": os.pathsep.join([str(directory), str(package), *([earlier] if earlier else [])])}
