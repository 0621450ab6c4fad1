"""The texts of single tokens in a step that has several."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
from tokenizers import Tokenizer, decoders, models

from handler.engine.generation.token_pieces import TokenText, token_pieces

MARKS = {"<call>": 300, "</call>": 301}


class Letters:
    """A tokenizer whose tokens are letters, but for its marks."""

    def get_added_vocab(self) -> dict[str, int]:
        return MARKS

    def decode(self, ids: Sequence[int]) -> str:
        return "".join(map(chr, ids))


@pytest.mark.parametrize(
    ("text", "ids", "pieces"),
    [
        ("ab", [97, 98], ["a", "b"]),
        ("a<call>b</call>", [97, 300, 98, 301], ["a", "<call>", "b", "</call>"]),
        ("ab", [97, 300, 98], ["a", "", "b"]),  # left out as a special token
        ("", [97, 98], ["", ""]),  # held back for a stop string
        ("a", [97], ["a"]),
        ("end", [], ["end"]),
    ],
)
def test_the_pieces_are_the_text_and_marks_are_whole(text: str, ids: list[int], pieces: list[str]) -> None:
    found = token_pieces(Letters(), text, ids)
    assert [piece for piece, _ in found] == pieces
    assert [token for _, token in found] == (ids or [-1])


class ByteFallback:
    """A compiled tokenizer with tokens for single bytes, as Llama 2's."""

    is_fast = True
    all_special_ids = ()

    def __init__(self) -> None:
        vocabulary = {f"<0x{byte:02X}>": byte for byte in range(256)} | {"!": 256}
        self.backend_tokenizer = Tokenizer(models.BPE(vocabulary, []))
        self.backend_tokenizer.decoder = decoders.Sequence([decoders.ByteFallback(), decoders.Fuse()])


def test_the_token_that_completes_a_character_has_all_of_it() -> None:
    assert TokenText(ByteFallback()).pieces([*"aé".encode(), 256]) == ["a", "", "é", "!"]


def test_bytes_that_are_no_character_end_no_reply() -> None:
    assert TokenText(ByteFallback()).pieces([*"é".encode(), 0xF0, 256]) == ["", "é", "", "!"]
