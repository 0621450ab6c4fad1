"""What torch.compile leaves behind, collected and put back; no engine."""

from __future__ import annotations

from pathlib import Path

import pytest

from handler.artifacts.compile_caches.torch_compile_cache import TorchCompileCache
from handler.artifacts.restore.restore import restore, source_of
from handler.artifacts.store.artifact_store import ArtifactStore
from handler.storage.directory_objects import DirectoryObjects
from handler.storage.storage_errors import NotFound
from tests.handler.artifacts.artifact_files import ingredients

COMPILED = ("inductor/yi/c1.so", "inductor/fxgraph/nn/f1/x", "vllm/torch_compile_cache/h/rank_0_0/graph.py")
NOT_COMPILED = ("inductor/locks/c1.lock", "inductor/.lock", "inductor/yi/c1.123.tmp", "vllm/modelinfos/x.json")


def filled(root: Path) -> TorchCompileCache:
    cache = TorchCompileCache(root)
    cache.clear()
    for name in (*COMPILED, *NOT_COMPILED):
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(name)
    (root / "inductor/yi/c1.so").chmod(0o755)
    return cache


def names(root: Path) -> set[str]:
    return {path.relative_to(root).as_posix() for path in root.rglob("*") if path.is_file()}


def test_collected_published_restored_and_put_back(tmp_path: Path) -> None:
    store = ArtifactStore(DirectoryObjects(tmp_path / "store"))
    assert filled(tmp_path / "here").collect(tmp_path / "entry") == len(COMPILED)
    manifest = store.publish(tmp_path / "entry", ingredients())
    restore([manifest], source_of(store), tmp_path / "restored")
    there = TorchCompileCache(tmp_path / "there")
    there.bring(tmp_path / "restored")
    assert names(tmp_path / "there") == set(COMPILED)
    assert (there.inductor / "yi/c1.so").read_text() == "inductor/yi/c1.so"
    (there.inductor / "new").write_text("the engine may write here")
    assert names(tmp_path / "restored") == set(COMPILED)


def test_what_was_there_before_is_gone(tmp_path: Path) -> None:
    filled(tmp_path / "here").collect(tmp_path / "entry")
    there = TorchCompileCache(tmp_path / "there")
    there.clear()
    (there.inductor / "stale.so").touch()
    there.bring(tmp_path / "entry")
    assert "inductor/stale.so" not in names(tmp_path / "there")


def test_an_engine_that_compiled_nothing_is_an_error(tmp_path: Path) -> None:
    cache = TorchCompileCache(tmp_path / "here")
    cache.clear()
    with pytest.raises(NotFound, match="compiled graph"):
        cache.collect(tmp_path / "entry")


def test_the_variables_name_the_directories(tmp_path: Path) -> None:
    cache = TorchCompileCache(tmp_path)
    assert cache.environment() == {
        "TORCHINDUCTOR_CACHE_DIR": f"{tmp_path}/inductor",
        "VLLM_CACHE_ROOT": f"{tmp_path}/vllm",
    }
