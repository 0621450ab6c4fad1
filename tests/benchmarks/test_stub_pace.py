"""When the stub's steps end, and what it says."""

from __future__ import annotations

import pytest

from benchmarks.serving.stub_pace import StubPace, plain_words


def test_steps_keep_their_rate_whatever_the_scheduler_takes() -> None:
    pace = StubPace()
    now, ends = 100.0, []
    for scheduler_s in (0.0, 0.005, 0.015, 0.001):
        now += scheduler_s
        now += pace.wait_s(now, 50)
        ends.append(now)
    assert ends == pytest.approx([100.02, 100.04, 100.06, 100.08])


def test_nothing_is_made_up_for_after_a_pause() -> None:
    pace = StubPace()
    pace.wait_s(100.0, 50)
    assert pace.wait_s(105.0, 50) == pytest.approx(0.02)
    assert pace.wait_s(105.02, 50) == pytest.approx(0.02)


def test_unpaced_never_waits() -> None:
    pace = StubPace()
    assert [pace.wait_s(now, None) for now in (1.0, 1.001, 50.0)] == [0.0, 0.0, 0.0]


class Tokenizer:
    """Of single words."""

    texts = ("<|end|>", " it", "word", " ein", " großer", " words", " 1984", " sentence", " a\ufffd")

    def __len__(self) -> int:
        return len(self.texts)

    def decode(self, tokens: list[int]) -> str:
        return "".join(self.texts[token] for token in tokens)


def test_the_words_are_text_by_themselves() -> None:
    assert plain_words(Tokenizer()) == [1, 3, 5]
