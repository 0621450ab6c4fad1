"""The prompts in an `inputs` body: a text, a list of texts, or messages."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from handler.engine.engine import Engine
from handler.errors import InvalidField, UnsupportedField
from handler.schemas.openai.chat import message_of
from handler.schemas.tgi_lmi.inputs_fields import Parameters


@dataclass(frozen=True, slots=True)
class Prompt:
    """A prompt's token ids, and the text with which its reply begins: the prompt, or nothing."""

    ids: list[int]
    prefix: str = ""


def prompts_of(inputs: str | Sequence[object], parameters: Parameters, engine: Engine, *, tgi: bool) -> list[Prompt]:
    """The prompt of each text, or the prompt of the conversation.

    TGI returns the prompt in front of the answer by default (text-generation-inference, router/src/server.rs,
    compat_return_full_text).

    :raises InvalidField: `inputs` is of another kind, or a text is empty.
    :raises TextTooLong: a text cannot fit the context, and `truncate` is not set.
    """
    full_text, cut = parameters.return_full_text, parameters.truncate is not None
    if isinstance(inputs, str) or all(isinstance(item, str) for item in inputs):
        named = ((str(text), f"inputs[{index}]") for index, text in enumerate(inputs))
        texts = [(inputs, "inputs")] if isinstance(inputs, str) else list(named)
        prompts = [
            Prompt(_text_ids(text, where, engine, cut=cut), text if (tgi if full_text is None else full_text) else "")
            for text, where in texts
        ]
    elif all(isinstance(item, dict) for item in inputs):
        if full_text:
            raise UnsupportedField("parameters.return_full_text", "it is supported for texts, not for messages")
        messages = [message_of(index, item, "inputs") for index, item in enumerate(inputs) if isinstance(item, dict)]
        prompts = [Prompt(engine.prompts.chat(messages, "inputs", cut=cut))]
    else:
        raise InvalidField("inputs", "it must be a text, a list of texts, or messages")
    if parameters.truncate is None:
        return prompts
    return [Prompt(prompt.ids[-parameters.truncate :], prompt.prefix) for prompt in prompts]


def _text_ids(text: str, where: str, engine: Engine, *, cut: bool) -> list[int]:
    if not text:
        raise InvalidField(where, "it is empty")
    return engine.prompts.text(text, where, cut=cut)
