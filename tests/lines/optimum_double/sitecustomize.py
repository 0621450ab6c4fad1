"""Runs first in each Python process of the tests: a Trainium chip, and the packages that optimum-neuron imports."""

from __future__ import annotations

import importlib.abc
import importlib.machinery
import sys
from types import ModuleType
from typing import Any

from closed_packages import CLOSED, ClosedPackages

SYSTEM = "optimum.neuron.utils.system"
DEVICE = {"get_neuron_major": 245, "get_neuron_devices_count": 1, "get_instance_name": "trn1.2xlarge"}


class Device(importlib.abc.MetaPathFinder):
    """Answers what optimum-neuron reads of /proc/devices, /dev and the machine's firmware."""

    def find_spec(self, fullname: str, path: Any = None, target: Any = None) -> Any:
        if fullname != SYSTEM:
            return None
        spec = importlib.machinery.PathFinder.find_spec(fullname, path)
        assert spec is not None
        assert spec.loader is not None
        load = spec.loader.exec_module

        def with_device(module: ModuleType) -> None:
            load(module)
            for name, value in DEVICE.items():
                setattr(module, name, lambda value=value: value)

        spec.loader.exec_module = with_device  # type: ignore[method-assign]
        return spec


sys.meta_path.insert(0, Device())
sys.meta_path.append(ClosedPackages(CLOSED | {"neuronx_distributed"}))
