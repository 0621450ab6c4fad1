"""Copies the files of a LoRA adapter, after a check, before the engine gets them.

vLLM reads an adapter's files again, in the middle of a step, whenever the adapter has left memory. If a file is gone
by then, the engine ends with all its requests (vllm/lora/worker_manager.py, LRUCacheWorkerLoRAManager). So the engine
gets a copy that nobody else deletes.
"""

from __future__ import annotations

import shutil
from collections.abc import Mapping
from pathlib import Path

from handler.engine.adapters.adapter_errors import InvalidAdapter
from handler.errors import SettingError
from handler.neuron.checkpoint.adapter_files import CONFIG, WEIGHTS, AdapterProblem, check_adapter
from handler.neuron.checkpoint.checkpoint_files import LocalFiles
from handler.regular_files import open_regular


def copy_checked(
    name: str, source: Path, target: Path, max_rank: int, modules: Mapping[str, tuple[int, ...]] | None = None
) -> None:
    """Checks the adapter in `source` and copies its files to `target`.

    :param modules: the model's modules with the shapes of their weights, if they are known.
    :raises InvalidAdapter: a file is missing, or vLLM cannot serve the adapter with this model.
    """
    try:
        check_adapter(LocalFiles(source, str(source)), max_rank, modules)
    except AdapterProblem as problem:
        raise InvalidAdapter(name, str(problem)) from None
    except SettingError as error:
        raise InvalidAdapter(name, error.problem) from None
    shutil.rmtree(target, ignore_errors=True)
    target.mkdir(parents=True)
    try:
        for file in (CONFIG, WEIGHTS):
            with open_regular(source / file, source) as given, (target / file).open("wb") as copy:
                shutil.copyfileobj(given, copy, 1 << 20)
    except OSError as error:
        shutil.rmtree(target, ignore_errors=True)
        raise InvalidAdapter(name, f"it cannot be copied ({error.strerror})") from None
