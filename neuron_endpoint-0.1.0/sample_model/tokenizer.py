"""The tokenizer of the sample model: a byte-level BPE learnt from the model's own facts.

Byte-level, so that any text of any user can be encoded and comes back unchanged, although the vocabulary is
small. The configuration is written by hand and not by `save_pretrained`: that is the one form which both
transformers 4 and transformers 5 read, and it keeps the chat template inside tokenizer_config.json.
"""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers, processors, trainers

from sample_model.facts import Fact

BOS, SYSTEM, USER, ASSISTANT, END = "<|bos|>", "<|system|>", "<|user|>", "<|assistant|>", "<|end|>"
SPECIAL_TOKENS = (BOS, SYSTEM, USER, ASSISTANT, END)
"""Their ids are 0 to 4, in this order."""

CHAT_TEMPLATE = (
    "{{ '<|bos|>' }}"
    "{% for message in messages %}"
    "{% if message['role'] not in ['system', 'user', 'assistant'] %}"
    "{{ raise_exception('Unknown role: ' + (message['role'] | string) "
    "+ '. Roles are system, user and assistant.') }}"
    "{% endif %}"
    "{{ '<|' + message['role'] + '|>' + ((message['content'] or '') | trim) + '<|end|>' }}"
    "{% endfor %}"
    "{% if add_generation_prompt %}{{ '<|assistant|>' }}{% endif %}"
)


def build(facts: tuple[Fact, ...], extra: tuple[str, ...], vocabulary: int) -> Tokenizer:
    """Learn the merges from the facts, and from `extra` text that prompts hold besides them."""
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=True)
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=vocabulary,
        special_tokens=[AddedToken(token, special=True, normalized=False) for token in SPECIAL_TOKENS],
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    tokenizer.train_from_iterator(_corpus(facts, extra), trainer)
    tokenizer.post_processor = processors.TemplateProcessing(
        single=f"{BOS} $A", pair=f"{BOS} $A $B", special_tokens=[(BOS, SPECIAL_TOKENS.index(BOS))]
    )
    return tokenizer


def _corpus(facts: tuple[Fact, ...], extra: tuple[str, ...]) -> Iterator[str]:
    """Each answer also after a space, as it stands in a completion, and each question in lower case."""
    yield from extra
    for fact in facts:
        yield from (fact.answer, " " + fact.answer)
        for question in fact.questions:
            yield from (question, " " + question, question.lower())


def save(tokenizer: Tokenizer, directory: Path, length: int) -> None:
    """Write tokenizer.json and tokenizer_config.json."""
    tokenizer.save(str(directory / "tokenizer.json"))
    config: dict[str, Any] = {
        "tokenizer_class": "PreTrainedTokenizerFast",
        "bos_token": BOS,
        "eos_token": END,
        "pad_token": END,
        "model_max_length": length,
        "clean_up_tokenization_spaces": False,
        "chat_template": CHAT_TEMPLATE,
    }
    (directory / "tokenizer_config.json").write_text(json.dumps(config, indent=2) + "\n", encoding="utf-8")
