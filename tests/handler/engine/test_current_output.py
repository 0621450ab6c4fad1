"""Tokens are given to vLLM's parsers together with their text, also where the tokenizer is not compiled."""

from __future__ import annotations

from typing import Any

import pytest

pytest.importorskip("vllm")
from vllm.outputs import CompletionOutput, RequestOutput
from vllm.sampling_params import SamplingParams

from handler.engine.v1.serving.current_output import SingleTokens

pytestmark = [pytest.mark.engine, pytest.mark.vllm_016("the streams of other versions are not corrected")]
WORDS = ("", "hm", " ok", "</think>", " Paris", " it", " is")


class SlowTokenizer:
    """As vLLM's MistralTokenizer: no `PreTrainedTokenizerFast`."""

    is_fast = False
    all_special_ids: tuple[int, ...] = ()

    def __len__(self) -> int:
        return len(WORDS)

    def convert_ids_to_tokens(self, ids: list[int], **options: Any) -> list[str]:
        return [WORDS[token] for token in ids]

    def convert_tokens_to_string(self, tokens: list[str]) -> str:
        return "".join(tokens)

    def get_added_vocab(self) -> dict[str, int]:
        return {}


def test_held_back_text_comes_with_its_tokens() -> None:
    singles = SingleTokens(SlowTokenizer(), SamplingParams(stop=["Observation:"]))
    text, sent, seen = "", 0, []
    for token in range(1, len(WORDS)):
        text += WORDS[token]
        last = token == len(WORDS) - 1
        end = len(text) if last else max(sent, len(text) - len("Observation"))
        choice = CompletionOutput(0, text[sent:end], [token], None, None, finish_reason="stop" if last else None)
        sent = end
        output = RequestOutput("r", None, [1], None, [choice], finished=last)
        seen += [(part.outputs[0].text, list(part.outputs[0].token_ids)) for part in singles.of(output)]
    assert seen == [(WORDS[token], [token]) for token in range(1, len(WORDS))]
