"""Renders messages or text to token ids, with the chat template and the tokenizer. Thread-safe."""

from __future__ import annotations

import threading
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from handler.engine.generation.request_cost import check_ids
from handler.errors import ClientError, InvalidField, TextTooLong

Message = Mapping[str, Any]
# The most characters of a text that is tokenized although it may be longer than the context. This many were measured
# to take 2.1 s and 421 MiB.
MOST_COUNTED = 2_000_000


@dataclass(frozen=True, slots=True)
class PromptRenderer:
    """Renders prompts for one model.

    :param tokenizer: a transformers tokenizer that nothing else uses.
    :param template: the chat template. None if the model has none; chat requests are then rejected.
    :param parts: the template expects a message's content as a list of parts.
    :param defaults: arguments of the template that a request may override.
    :param vocab_size: token ids in a prompt must be below it. A larger id ends vLLM's engine.
    :param max_characters: the most characters of a text that can fit the context; None: no limit. A longer text is
        rejected before it is tokenized, because a million characters take a second and 200 MiB. vLLM has the same rule
        (renderers/params.py). Both ignore that some tokenizers drop characters.
    """

    tokenizer: Any
    template: str | None
    parts: bool
    vocab_size: int
    max_characters: int | None = None
    defaults: Mapping[str, Any] = field(default_factory=dict)
    # Fast tokenizers encode in Rust and are thread-safe. Slow ones are Python objects with state, and need the lock.
    _slow: threading.Lock = field(default_factory=threading.Lock)

    @property
    def compiled(self) -> bool:
        """Whether the tokenizer is compiled (a "fast" one of transformers), and so needs no lock."""
        return bool(getattr(self.tokenizer, "is_fast", False))

    def chat(
        self,
        messages: Sequence[Message],
        param: str = "messages",
        *,
        add_generation_prompt: bool = True,
        continue_final_message: bool = False,
        add_special_tokens: bool = False,
        template_arguments: Mapping[str, Any] | None = None,
        cut: bool = False,
    ) -> list[int]:
        """The token ids of a conversation.

        :param cut: as in `text`.
        :raises InvalidField: the template rejects the messages (a role, their order), or the model has no template.
        :raises TextTooLong: the messages cannot fit the context.
        """
        if self.template is None:
            raise InvalidField(param, "this model has no chat template; send 'prompt' instead")
        try:
            text = self.tokenizer.apply_chat_template(
                [self._message(message) for message in messages],
                chat_template=self.template,
                tokenize=False,
                add_generation_prompt=add_generation_prompt,
                continue_final_message=continue_final_message,
                **{**self.defaults, **(template_arguments or {})},
            )
        except ClientError:
            raise
        except Exception as error:  # jinja2.TemplateError for raise_exception, TypeError and others for bad shapes
            raise InvalidField(param, f"the chat template rejects the messages ({_first_line(error)})") from None
        return self.text(text, param, add_special_tokens=add_special_tokens, cut=cut)

    def text(self, text: str, param: str, *, add_special_tokens: bool = True, cut: bool = False) -> list[int]:
        """The token ids of a text.

        :param cut: only some of the tokens are used, so the text may be longer than the context.
        :raises InvalidField: the text has no tokens.
        :raises TextTooLong: the text cannot fit the context.
        """
        self.check_length(len(text), param, cut=cut)
        if self.compiled:
            ids: list[int] = self.tokenizer.backend_tokenizer.encode(text, add_special_tokens=add_special_tokens).ids
        else:
            with self._slow:
                ids = self.tokenizer.encode(text, add_special_tokens=add_special_tokens)
        if not ids:
            raise InvalidField(param, "it is empty")
        return ids

    def check_length(self, characters: int, param: str, *, cut: bool) -> None:
        """Checks the length of a text before it is tokenized.

        :param cut: the text may be longer than the context.
        :raises InvalidField: the text is longer than any text that is tokenized.
        :raises TextTooLong: the text cannot fit the context.
        """
        if self.max_characters is None or characters <= self.max_characters:
            return
        if not cut:
            raise TextTooLong(characters, self.max_characters, param)
        if characters > MOST_COUNTED:
            raise InvalidField(param, f"it has {characters:,} characters; at most {MOST_COUNTED:,} are allowed")

    def ids(self, ids: Sequence[int], param: str) -> list[int]:
        """Checks token ids that the client sent.

        :raises InvalidField: there are none, or one is outside the vocabulary.
        """
        if not ids:
            raise InvalidField(param, "it is empty")
        check_ids(param, ids, self.vocab_size - 1)
        return list(ids)

    def _message(self, message: Message) -> Message:
        content = message.get("content")
        if self.parts and isinstance(content, str):
            return {**message, "content": [{"type": "text", "text": content}]}
        if not self.parts and isinstance(content, list):  # as vLLM joins them
            return {**message, "content": "\n".join(part["text"] for part in content)}
        return message


def _first_line(error: Exception) -> str:
    return (str(error).strip().splitlines() or [type(error).__name__])[0][:200]
