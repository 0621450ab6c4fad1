"""Translates an `inputs` body to what the engine gets: prompts (a text, a list, messages) and sampling parameters."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Final

from handler.engine.engine import Engine
from handler.engine.generation.generation import Sampling
from handler.engine.generation.request_limits import RequestLimits
from handler.engine.generation.stop_strings import stop_strings
from handler.errors import InvalidField, UnsupportedField
from handler.schemas.openai.chat import message_of
from handler.schemas.openai.completion import default_max_tokens
from handler.schemas.openai.sampling_fields import sampler_arguments
from handler.schemas.tgi_lmi.inputs_fields import Parameters, grammar_of

# An image in a text (text-generation-inference, router/src/validation.rs, prepare_input).
TGI_IMAGE: Final = re.compile(r"!\[\]\((https?://|data:)")


@dataclass(frozen=True, slots=True)
class Prompt:
    """A prompt's token ids, its text, and the text with which its reply begins: the prompt, or nothing.

    :param text: None for messages.
    """

    ids: list[int]
    text: str | None = None
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
        for text, where in texts if tgi and engine.traits.multimodal else ():
            if TGI_IMAGE.search(text):
                raise UnsupportedField(where, "send an image as 'messages', in a part of the type image_url")
        full = tgi if full_text is None else full_text
        prompts = [Prompt(_text_ids(text, where, engine, cut=cut), text, text if full else "") for text, where in texts]
    elif all(isinstance(item, dict) for item in inputs):
        if full_text:
            raise UnsupportedField("parameters.return_full_text", "it is supported for texts, not for messages")
        messages = [message_of(index, item, "inputs") for index, item in enumerate(inputs) if isinstance(item, dict)]
        prompts = [Prompt(engine.prompts.chat(messages, "inputs", cut=cut))]
    else:
        raise InvalidField("inputs", "it must be a text, a list of texts, or messages")
    if parameters.truncate is None:
        return prompts
    return [replace(prompt, ids=prompt.ids[-parameters.truncate :]) for prompt in prompts]


def _text_ids(text: str, where: str, engine: Engine, *, cut: bool) -> list[int]:
    if not text:
        raise InvalidField(where, "it is empty")
    return engine.prompts.text(text, where, cut=cut)


# LMI's default. TGI's is as many as the context has room for.
LMI_MAX_NEW_TOKENS = 30


def greedy(parameters: Parameters, *, tgi: bool) -> bool:
    """Whether decoding is greedy: neither `do_sample` nor a parameter that changes the distribution requests sampling.

    For LMI an explicit `do_sample: false` decides. For TGI such a parameter decides, because its Python client sends
    `false` with every request (text-generation-inference, router/src/validation.rs and
    server/text_generation_server/utils/tokens.py; djl-serving, djl_python/lmi_vllm/request_response_utils.py).
    """
    if parameters.do_sample:
        return False
    if parameters.do_sample is False and not tgi:
        return True
    return (
        parameters.temperature in ((None, 1.0) if tgi else (None,))
        and parameters.top_p in (None, 1.0)
        and parameters.top_k in (None, 0, -1)
        and parameters.min_p in (None, 0.0)
    )


def sampling_of(
    parameters: Parameters, limits: RequestLimits, prompt: int, logprobs: int | None, *, tgi: bool
) -> Sampling:
    """The engine's sampling parameters.

    :param prompt: the length of the prompt in tokens.
    :param logprobs: as in `Sampling`.
    :raises InvalidField: a parameter is wrong. The error names it.
    """
    stop = stop_strings("parameters.stop", parameters.stop, parameters.stop_sequences)
    room = limits.max_model_len - prompt
    default = None if tgi else max(1, min(default_max_tokens(limits, LMI_MAX_NEW_TOKENS), room))
    most, least = parameters.max_new_tokens or default, parameters.min_tokens or 0
    if most is not None and least > most:
        raise InvalidField("parameters.min_tokens", f"{least} is more than 'parameters.max_new_tokens', {most}")
    include_stop = parameters.include_stop_str_in_output
    return Sampling(
        **sampler_arguments(parameters),
        max_tokens=most,
        max_tokens_field="parameters.max_new_tokens",
        min_tokens=least,
        temperature=0.0 if greedy(parameters, tgi=tgi) else parameters.temperature,
        stop=stop,
        ignore_eos=bool(parameters.ignore_eos_token),
        # TGI's text includes the stop string, LMI's does not.
        include_stop_str_in_output=tgi if include_stop is None else include_stop,
        skip_special_tokens=parameters.skip_special_tokens is not False,
        spaces_between_special_tokens=parameters.spaces_between_special_tokens is not False,
        logprobs=logprobs,
        prompt_logprobs=0 if parameters.decoder_input_details else None,
        grammar=grammar_of(parameters.grammar),
    )
