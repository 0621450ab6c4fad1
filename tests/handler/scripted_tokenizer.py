"""A stand-in for a transformers tokenizer: a byte is a token, and its chat templates are real Jinja."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from types import SimpleNamespace
from typing import Any, NoReturn

import jinja2

from handler.engine.generation.prompt_renderer import PromptRenderer

BOS = 256
VOCAB_SIZE = 257
# The conversation's contents, one after the other: a test's prompt is then what the test wrote.
PLAIN_TEMPLATE = "{% for message in messages %}{{ message['content'] }}{% endfor %}"
STRICT_TEMPLATE = (
    "{% for message in messages %}"
    "{% if (message['role'] == 'user') != (loop.index0 % 2 == 0) %}"
    "{{ raise_exception('Conversation roles must alternate user/assistant') }}"
    "{% endif %}[{{ message['role'] }}] {{ message['content'] }}\n{% endfor %}"
    "{% if add_generation_prompt %}[assistant] {% endif %}{% if shout %}!{% endif %}"
)


class ScriptedTokenizer:
    """What `PromptRenderer` uses of a slow (Python) tokenizer."""

    is_fast = False
    all_special_ids = (BOS,)

    def decode(self, ids: Sequence[int]) -> str:
        return "".join("<bos>" if token == BOS else chr(token) for token in ids)

    def encode(self, text: str, add_special_tokens: bool = True) -> list[int]:
        return [BOS] * add_special_tokens + list(text.encode())

    def apply_chat_template(
        self,
        conversation: Sequence[Mapping[str, Any]],
        chat_template: str,
        tokenize: bool,
        add_generation_prompt: bool,
        continue_final_message: bool,
        **arguments: object,
    ) -> str:
        def refuse(message: str) -> NoReturn:
            raise jinja2.TemplateError(message)

        assert not tokenize
        text: str = jinja2.Template(chat_template).render(
            messages=conversation, add_generation_prompt=add_generation_prompt, raise_exception=refuse, **arguments
        )
        return text


class QuickTokenizer(ScriptedTokenizer):
    """What `PromptRenderer` uses of a compiled tokenizer: the same tokens."""

    is_fast = True

    @property
    def backend_tokenizer(self) -> QuickTokenizer.Backend:
        return self.Backend()

    class Backend:
        def encode(self, text: str, add_special_tokens: bool = True) -> SimpleNamespace:
            return SimpleNamespace(ids=[BOS] * add_special_tokens + list(text.encode()))


def scripted_prompts(
    template: str | None = PLAIN_TEMPLATE, *, parts: bool = False, quick: bool = False
) -> PromptRenderer:
    """A real renderer over the stand-in."""
    return PromptRenderer(QuickTokenizer() if quick else ScriptedTokenizer(), template, parts, VOCAB_SIZE)


def text_of(ids: Sequence[int]) -> str:
    """The text that the stand-in made these ids of."""
    return bytes(token for token in ids if token != BOS).decode()
