"""Runs first in each Python process of the tests: Trainium chips, and the packages that optimum-neuron imports."""

from __future__ import annotations

import importlib.abc
import importlib.machinery
import os
import sys
from collections.abc import Mapping
from pathlib import Path
from types import ModuleType
from typing import Any

from closed_packages import ClosedPackages

DEVICES = int(os.environ.get("DOUBLE_DEVICES", "1"))
CLOSED = frozenset({"torch_xla", "torch_neuronx", "libneuronxla", "neuronxcc", "neuronx_distributed"})
# What optimum-neuron's modules find of /proc/devices, /dev, the machine's firmware and the driver's files.
DEVICE: Mapping[str, Mapping[str, Any]] = {
    "optimum.neuron.utils.system": {
        "get_neuron_major": lambda: 245,
        "get_neuron_devices_count": lambda: DEVICES,
        "get_instance_name": lambda: "trn1.2xlarge" if DEVICES == 1 else "trn1.32xlarge",
    },
    "optimum.neuron.utils.neuron_device_memory": {"SYSFS_NEURON_BASE": Path(__file__).parent},
}


class Device(importlib.abc.MetaPathFinder):
    """Loads these modules as they are, and then sets what they find."""

    def find_spec(self, fullname: str, path: Any = None, target: Any = None) -> Any:
        if fullname not in DEVICE:
            return None
        spec = importlib.machinery.PathFinder.find_spec(fullname, path)
        assert spec is not None
        assert spec.loader is not None
        load = spec.loader.exec_module

        def with_device(module: ModuleType) -> None:
            load(module)
            vars(module).update(DEVICE[fullname])

        spec.loader.exec_module = with_device  # type: ignore[method-assign]
        return spec


sys.meta_path.insert(0, Device())
sys.meta_path.append(ClosedPackages(CLOSED))
