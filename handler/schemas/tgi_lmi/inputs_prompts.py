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
    """Token ids, and the text that the reply begins with: the prompt's own, or none."""

    ids: list[int]
    prefix: str = ""


def prompts_of(given: str | Sequence[object], parameters: Parameters, engine: Engine, *, tgi: bool) -> list[Prompt]:
    """Of each text by itself, or of the conversation. TGI puts a text in front of its answer unless told otherwise
    (text-generation-inference, router/src/server.rs, compat_return_full_text).

    :raises InvalidField: another kind of `inputs`, or an empty text.
    :raises TextTooLong: a text that is not to be cut, and cannot fit the context.
    """
    full_text, cut = parameters.return_full_text, parameters.truncate is not None
    if isinstance(given, str) or all(isinstance(item, str) for item in given):
        texts = [(given, "inputs")] if isinstance(given, str) else _named(given)
        prompts = [
            Prompt(_text_ids(text, where, engine, cut=cut), text if (tgi if full_text is None else full_text) else "")
            for text, where in texts
        ]
    elif all(isinstance(item, dict) for item in given):
        if full_text:
            raise UnsupportedField("parameters.return_full_text", "it goes with a text, not with messages")
        messages = [message_of(index, item, "inputs") for index, item in enumerate(given) if isinstance(item, dict)]
        prompts = [Prompt(engine.prompts.chat(messages, "inputs", cut=cut))]
    else:
        raise InvalidField("inputs", "it must be a text, a list of texts, or messages")
    if parameters.truncate is None:
        return prompts
    return [Prompt(prompt.ids[-parameters.truncate :], prompt.prefix) for prompt in prompts]


def _named(texts: Sequence[object]) -> list[tuple[str, str]]:
    return [(str(text), f"inputs[{index}]") for index, text in enumerate(texts)]


def _text_ids(text: str, where: str, engine: Engine, *, cut: bool) -> list[int]:
    if not text:
        raise InvalidField(where, "it is empty")
    return engine.prompts.text(text, where, cut=cut)
