"""The compiler's own cache: what is saved of it, what is brought, and what is cleaned out."""

from __future__ import annotations

import fcntl
import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from handler.artifacts.compile_caches.neff_cache import ModuleState, NeffCache, environment
from handler.artifacts.compile_caches.neff_store import NeffStore
from handler.artifacts.store.manifest_signature import SecretSigner
from handler.errors import SettingError
from handler.storage.object_store import ObjectStore

COMPILER = "2.21.18209.0+043b1bf7"


def module(root: Path, name: str = "MODULE_1+a", neff: bytes | None = b"neff", *, done: bool = True) -> Path:
    directory = root / f"neuronxcc-{COMPILER}" / name
    directory.mkdir(parents=True)
    (directory / "model.hlo_module.pb").write_bytes(b"hlo")
    (directory / "compile_flags.json").write_text("[]")
    (directory / "model.hlo_module.pb.lock").touch()
    if neff is not None:
        (directory / "model.neff").write_bytes(neff)
        if done:
            (directory / "model.done").touch()
    return directory


def names(root: Path) -> set[str]:
    return {path.name for path in root.glob("neuronxcc-*/*")}


@pytest.fixture
def here(tmp_path: Path) -> Path:
    return tmp_path / "here"


@pytest.fixture
def there(tmp_path: Path) -> Path:
    return tmp_path / "there"


def test_what_one_compiled_another_has(objects: ObjectStore, here: Path, there: Path) -> None:
    made = module(here)
    assert NeffCache(here, NeffStore(objects)).save().modules == 1
    brought = NeffCache(there, NeffStore(objects)).bring(COMPILER)
    assert (brought.modules, brought.refused) == (1, ())
    arrived = there / made.relative_to(here)
    assert {path.name: path.read_bytes() for path in arrived.iterdir()} == {
        "model.hlo_module.pb": b"hlo",
        "compile_flags.json": b"[]",
        "model.neff": b"neff",
        "model.done": b"",
    }


def test_only_what_is_finished_is_saved(objects: ObjectStore, here: Path, there: Path) -> None:
    module(here, "MODULE_1+a")
    module(here, "MODULE_2+a", None)  # interrupted
    module(here, "MODULE_3+a", done=False)
    (module(here, "MODULE_4+a", None) / "model.log").write_text("error")
    module(here, "MODULE_5+a", b"")  # an empty neff is none
    NeffCache(here, NeffStore(objects)).save()
    NeffCache(there, NeffStore(objects)).bring(COMPILER)
    assert names(there) == {"MODULE_1+a"}


def test_clean(objects: ObjectStore, here: Path) -> None:
    finished = module(here, "MODULE_1+a")
    module(here, "MODULE_2+a", None)
    (module(here, "MODULE_3+a", None) / "model.log").write_text("error")
    busy = module(here, "MODULE_4+a", None)
    with open(busy / "model.hlo_module.pb.lock", "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        cleaned = NeffCache(here, NeffStore(objects)).clean()
    assert cleaned == dict.fromkeys(ModuleState, 1)
    assert names(here) == {finished.name, busy.name}
    assert not list(finished.glob("*.lock"))


def test_another_version_of_the_compiler_brings_nothing(objects: ObjectStore, here: Path, there: Path) -> None:
    module(here)
    NeffCache(here, NeffStore(objects)).save()
    assert NeffCache(there, NeffStore(objects)).bring("2.22.0").modules == 0


def test_saved_once(objects: ObjectStore, here: Path) -> None:
    module(here)
    cache = NeffCache(here, NeffStore(objects))
    assert [cache.save().modules, cache.save().modules] == [1, 0]


@pytest.mark.parametrize("damage", [b"nefx", b"ne", b"neff and more"])
def test_damaged_bytes_are_passed_over(objects: ObjectStore, here: Path, there: Path, damage: bytes) -> None:
    module(here, "MODULE_1+a")
    module(here, "MODULE_2+a", b"other")
    NeffCache(here, NeffStore(objects)).save()
    for info in list(objects.list("neff/objects/")):
        if objects.get(info.key)[0] == b"neff":
            objects.put(info.key, damage)
    brought = NeffCache(there, NeffStore(objects)).bring(COMPILER)
    assert names(there) == {"MODULE_2+a"}
    assert brought.modules == 1
    assert "digest" in brought.refused[0]


@pytest.mark.parametrize("limit", [{"most_bytes": 1500}, {"most_modules": 1}])
def test_the_limit_keeps_the_newest(objects: ObjectStore, here: Path, there: Path, limit: dict[str, int]) -> None:
    for name in ("MODULE_1+a", "MODULE_2+a"):
        module(here, name, name.encode() * 100)
        NeffCache(here, NeffStore(objects)).save()
    assert NeffCache(there, NeffStore(objects)).bring(COMPILER, **limit).modules == 1


def test_with_a_key_only_signed_modules_are_brought(
    objects: ObjectStore, here: Path, there: Path, tmp_path: Path
) -> None:
    signer = SecretSigner(b"0123456789abcdef")
    module(here, "MODULE_1+a")
    NeffCache(here, NeffStore(objects)).save()
    module(tmp_path / "signed", "MODULE_2+a", b"signed")
    NeffCache(tmp_path / "signed", NeffStore(objects, signer)).save()
    brought = NeffCache(there, NeffStore(objects, signer)).bring(COMPILER)
    assert names(there) == {"MODULE_2+a"}
    assert "not signed" in brought.refused[0]


class DisabledKey(SecretSigner):
    """As a KMS key that is disabled."""

    def sign(self, *arguments: Any, **named: Any) -> Any:
        raise SettingError("ENDPOINT_ARTIFACT_SIGNING_KEY", "cannot be used (DisabledException)", "Enable it.")


def test_a_key_that_cannot_sign_does_not_end_a_start_that_has_compiled(
    objects: ObjectStore, here: Path, caplog: pytest.LogCaptureFixture
) -> None:
    with NeffCache(here, NeffStore(objects, DisabledKey(b"0123456789abcdef")), COMPILER).shared():
        module(here)
    assert "DisabledException" in caplog.text


def _unsigned(objects: ObjectStore) -> None:
    for info in list(objects.list("neff/modules/")):
        envelope = json.loads(objects.get(info.key)[0])
        objects.put(info.key, json.dumps({**envelope, "signature": None}).encode())


def _cut_list(objects: ObjectStore) -> None:
    for info in list(objects.list("neff/modules/")):
        objects.put(info.key, b"{")


def _expired(objects: ObjectStore) -> None:
    for info in list(objects.list("neff/objects/")):
        objects.delete(info.key)


def _damaged(objects: ObjectStore) -> None:
    for info in list(objects.list("neff/objects/")):
        objects.put(info.key, b"x" * info.size)


@pytest.mark.parametrize("broken", [_unsigned, _cut_list, _expired, _damaged])
def test_a_module_that_cannot_be_brought_is_replaced_by_the_next_compile(
    objects: ObjectStore, here: Path, there: Path, tmp_path: Path, broken: Callable[[ObjectStore], None]
) -> None:
    store = NeffStore(objects, SecretSigner(b"0123456789abcdef"))
    module(here)
    NeffCache(here, store).save()
    broken(objects)
    with NeffCache(there, store, COMPILER).shared():
        assert names(there) == set()
        module(there)
    assert NeffCache(tmp_path / "third", store).bring(COMPILER).modules == 1


@pytest.mark.parametrize("broken", [_unsigned, _cut_list, _expired])
def test_a_module_that_cannot_be_read_is_replaced_though_nobody_tried_to_bring_it(
    objects: ObjectStore, here: Path, there: Path, broken: Callable[[ObjectStore], None]
) -> None:
    """Only the newest are brought."""
    store = NeffStore(objects, SecretSigner(b"0123456789abcdef"))
    module(here)
    NeffCache(here, store).save()
    broken(objects)
    assert NeffCache(here, store).save().modules == 1
    assert NeffCache(there, store).bring(COMPILER).modules == 1


def test_a_module_that_names_a_path_is_refused(objects: ObjectStore, there: Path) -> None:
    digest = "0" * 64
    body = (
        f'{{"module": {{"neff_schema": 1, "compiler": "{COMPILER}", "module": "MODULE_1+a", '
        f'"files": [{{"name": "../x", "size": 1, "digest": "{digest}"}}]}}}}'
    )
    objects.put(f"neff/modules/neuronxcc-{COMPILER}/MODULE_1+a.json", body.encode())
    objects.put(f"neff/objects/{digest}", b"x")
    assert len(NeffCache(there, NeffStore(objects)).bring(COMPILER).refused) == 1
    assert names(there) == set()


def test_the_work_directory_is_the_same_everywhere(here: Path, there: Path) -> None:
    assert environment(here)["BASE_COMPILE_WORK_DIR"] == environment(there)["BASE_COMPILE_WORK_DIR"]
    assert environment(here)["NEURON_COMPILE_CACHE_URL"] == str(here)


ROOT = Path(__file__).parents[4]
# A later run finds the types inspected: each trial is a process of its own. Without ready decoders, four of five die.
TRIALS = 8
PROGRAM = """
import sys
import threading

from handler.artifacts.compile_caches import neff_store
from handler.artifacts.lease import lease, negative_entries
from handler.artifacts.store import gc_marks, manifest

sys.setswitchinterval(1e-6)
decoders = [
    value
    for module in (neff_store, lease, negative_entries, gc_marks, manifest)
    for value in vars(module).values()
    if type(value).__name__ == "Decoder"
]
barrier = threading.Barrier(16)
body = b'{"neff_schema":1,"compiler":"a","module":"b","files":[{"name":"a","size":1,"digest":"%s"}]}' % (b"0" * 64)


def read():
    barrier.wait()
    neff_store._MODULES.decode(body)
    for decoder in decoders:
        try:
            decoder.decode(b"{}")
        except Exception:
            continue


threads = [threading.Thread(target=read) for _ in range(16)]
for thread in threads:
    thread.start()
for thread in threads:
    thread.join()
print(len(decoders))
"""


@pytest.mark.parametrize("trial", range(TRIALS))
def test_many_threads_may_be_the_first_to_read(trial: int) -> None:
    """A process that has read no module before may read many at once, in a thread each."""
    done = subprocess.run([sys.executable, "-c", PROGRAM], cwd=ROOT, capture_output=True, text=True)
    assert (done.returncode, done.stdout) == (0, "8\n"), done.stderr
