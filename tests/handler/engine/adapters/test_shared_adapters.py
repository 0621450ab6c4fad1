"""One owner of adapters and others that use them: each goes by the latest change, and none is freed under a request."""

from __future__ import annotations

import os
import signal
from pathlib import Path
from types import SimpleNamespace

import pytest

from handler.engine.adapters.adapter_errors import AdapterNotFound
from handler.engine.adapters.adapter_table import Adapter
from handler.engine.adapters.shared_adapters import AdapterNotes, FollowedAdapters


class Notes(AdapterNotes):
    """With the number of changes in this process alone."""

    def __init__(self, directory: Path) -> None:
        self.change = 0
        super().__init__(directory, lambda: self.change, self._set)

    def _set(self, change: int) -> None:
        self.change = change


@pytest.fixture
def notes(tmp_path: Path) -> Notes:
    return Notes(tmp_path)


def adapter(name: str, identity: int) -> Adapter:
    request = SimpleNamespace(lora_name=f"{name}#{identity}", lora_path=f"/files/{identity}")
    return Adapter(name, f"/source/{name}", False, identity, Path(request.lora_path), request)


def followed(notes: AdapterNotes) -> FollowedAdapters:
    return FollowedAdapters(("model",), notes, lambda identity, name, path: (identity, name, path))


def test_what_the_owner_writes_down_is_there_for_all(notes: Notes) -> None:
    others = followed(notes)
    assert others.names() == ()
    notes.write([adapter("a", 1)], adapter("nothing", 9))
    assert others.names() == ("a",)
    found = others.begin("a")
    assert found is not None
    assert found.request == (1, "a#1", "/files/1")
    plain = others.begin("model")
    assert plain is not None
    assert plain.identity == 9  # the bare model's requests bring the adapter of zeros
    others.end(plain)
    others.end(found)
    notes.write([adapter("a", 2)], adapter("nothing", 9))  # new files in its place
    assert others.get("a").identity == 2
    notes.write([], None)
    with pytest.raises(AdapterNotFound):
        others.begin("a")


def test_an_adapter_is_in_use_from_the_first_request_to_the_end_of_the_last(notes: Notes) -> None:
    notes.write([adapter("a", 1)], None)
    others = followed(notes)
    assert not notes.in_use(1)
    one, two = others.begin("a"), others.begin("a")
    assert one is two is not None
    notes.write([], None)
    assert notes.in_use(1)
    others.end(one)
    assert notes.in_use(1)
    others.end(one)
    assert not notes.in_use(1)


def test_a_change_between_the_look_and_the_use_is_seen(notes: Notes, monkeypatch: pytest.MonkeyPatch) -> None:
    notes.write([adapter("a", 1)], None)
    others = followed(notes)
    use = notes.use

    def unloaded_meanwhile(identity: int) -> int:
        if identity == 1:
            notes.write([adapter("a", 2)], None)
            assert not notes.in_use(1)  # so the owner frees it now
        return use(identity)

    monkeypatch.setattr(notes, "use", unloaded_meanwhile)
    found = others.begin("a")
    assert found is not None
    assert found.identity == 2
    assert not notes.in_use(1)
    assert notes.in_use(2)


def test_a_process_that_was_killed_uses_nothing(notes: Notes) -> None:
    ready, told = os.pipe()
    pid = os.fork()
    if not pid:
        notes.use(1)
        os.write(told, b"1")
        signal.pause()
    os.read(ready, 1)
    assert notes.in_use(1)
    os.kill(pid, signal.SIGKILL)
    os.waitpid(pid, 0)
    assert not notes.in_use(1)
