"""From messages or text to token ids: the chat template and the tokenizer, used by many threads at once."""

from __future__ import annotations

import threading
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from handler.errors import ClientError, InvalidField, TextTooLong

Message = Mapping[str, Any]
# Characters of a text whose tokens are counted though it need not fit: seen to take 2.1 s and 421 MiB.
MOST_COUNTED = 2_000_000


@dataclass(frozen=True, slots=True)
class PromptRenderer:
    """Renders prompts.

    :param tokenizer: a transformers tokenizer that nobody else uses.
    :param template: the chat template; None where the model has none, and chat is refused.
    :param parts: the template wants a content as a list of parts.
    :param defaults: arguments of the template where a request gives none.
    :param vocab_size: the bound that token-id prompts must keep to: an id past it ends vLLM's engine.
    :param max_characters: of a text: more do not fit the context, and counting the tokens of a million takes a second
        and 200 MiB. vLLM draws this line too (renderers/params.py); neither knows of tokenizers that drop characters.
        None: any.
    """

    tokenizer: Any
    template: str | None
    parts: bool
    vocab_size: int
    max_characters: int | None = None
    defaults: Mapping[str, Any] = field(default_factory=dict)
    # Fast tokenizers encode in Rust under threads; the slow ones are Python with state.
    _slow: threading.Lock = field(default_factory=threading.Lock)

    @property
    def quick(self) -> bool:
        """Its tokenizer is compiled, and waits for no lock."""
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
        """Token ids of a conversation.

        :param cut: as of a text.
        :raises InvalidField: the template refuses the messages (a role, an order), or there is none.
        :raises TextTooLong: they cannot fit the context.
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
            raise InvalidField(param, f"the chat template refuses them ({_first_line(error)})") from None
        return self.text(text, param, add_special_tokens=add_special_tokens, cut=cut)

    def text(self, text: str, param: str, *, add_special_tokens: bool = True, cut: bool = False) -> list[int]:
        """Token ids of a text.

        :param cut: only some of its tokens are wanted, so that it need not fit the context.
        :raises InvalidField: the text has no tokens.
        :raises TextTooLong: it cannot fit the context.
        """
        self.check_length(len(text), param, cut=cut)
        if self.quick:
            ids: list[int] = self.tokenizer.backend_tokenizer.encode(text, add_special_tokens=add_special_tokens).ids
        else:
            with self._slow:
                ids = self.tokenizer.encode(text, add_special_tokens=add_special_tokens)
        if not ids:
            raise InvalidField(param, "it is empty")
        return ids

    def check_length(self, characters: int, param: str, *, cut: bool) -> None:
        """Before anybody counts tokens.

        :param cut: it need not fit the context.
        :raises InvalidField: it is longer than what is counted for one request.
        :raises TextTooLong: it cannot fit the context.
        """
        if self.max_characters is None or characters <= self.max_characters:
            return
        if not cut:
            raise TextTooLong(characters, self.max_characters, param)
        if characters > MOST_COUNTED:
            raise InvalidField(param, f"it has {characters:,} characters; one request may have {MOST_COUNTED:,}")

    def ids(self, ids: Sequence[int], param: str) -> list[int]:
        """Token ids that the client sent, within the vocabulary.

        :raises InvalidField: none, or one that the model does not have.
        """
        if not ids:
            raise InvalidField(param, "it is empty")
        for position, token in enumerate(ids):
            if not 0 <= token < self.vocab_size:
                raise InvalidField(
                    param, f"token id {token} at position {position} is outside 0 to {self.vocab_size - 1}"
                )
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
