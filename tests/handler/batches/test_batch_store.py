"""The content of a file whose object is damaged."""

from __future__ import annotations

from pathlib import Path

import pytest

from handler.batches.batch_objects import RecordDamaged
from handler.batches.batch_store import BatchStore
from handler.storage.directory_objects import DirectoryObjects


@pytest.mark.parametrize("content", [b"", b"abc", b"abcde"])
def test_a_content_of_another_size_than_its_record_says_is_an_error(content: bytes, tmp_path: Path) -> None:
    store = BatchStore(DirectoryObjects(tmp_path))
    identity = store.add_file("a", "batch", [b"ab", b"cd"]).id
    assert b"".join(store.content(identity)) == b"abcd"
    (tmp_path / "files" / identity / "content").write_bytes(content)
    with pytest.raises(RecordDamaged, match="4 bytes of its record"):
        list(store.content(identity))
