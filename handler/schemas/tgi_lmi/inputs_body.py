"""`{"inputs": ..., "parameters": {...}, "stream": ...}`: the body of TGI and of DJL's LMI, as a call.

`inputs` is a text, a list of texts (several generations, answered in order), or messages. Where TGI and LMI differ,
`RequestOptions` says whose body it is; docs/requests.md has the table.
"""

from __future__ import annotations

import uuid
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from handler.engine.engine import Engine
from handler.engine.generation.generation import Generation
from handler.engine.generation.token_text import TokenText
from handler.errors import InvalidField, MissingField, UnsupportedField
from handler.schemas.framing import framed
from handler.schemas.multiple_generations import MultipleCall
from handler.schemas.openai.model_names import check_model
from handler.schemas.openai.sampling_fields import convert
from handler.schemas.reply import AnyCall, Call
from handler.schemas.tgi_lmi.inputs_fields import LMI, TGI, InputsFields, Parameters, parameters_of
from handler.schemas.tgi_lmi.inputs_lists import BestOfReply, ListReply
from handler.schemas.tgi_lmi.inputs_prompts import Prompt, prompts_of
from handler.schemas.tgi_lmi.inputs_reply import InputsReply, Reported
from handler.schemas.tgi_lmi.inputs_sampling import greedy, sampling_of
from handler.schemas.tgi_lmi.request_options import RequestOptions


def parse(document: Mapping[str, Any], engine: Engine, asked: RequestOptions | None = None) -> AnyCall:
    """A TGI or LMI body as a call, of several generations where it takes them.

    :param asked: whose body it is and how a stream is framed, where the body leaves it open.
    :raises ClientError: naming the field.
    """
    if document.get("inputs") is None:
        raise MissingField("inputs", "send a text, a list of texts, or messages")
    asked = asked or RequestOptions()
    fields = convert(document, InputsFields)
    parameters = parameters_of(fields.parameters or {})
    models = fields.models(parameters)
    for model in models:
        check_model(model, engine.served_names)
    formatter = parameters.output_formatter or asked.output_formatter
    stream = bool(fields.stream) if formatter is None else formatter != "json"
    listed = isinstance(fields.inputs, list) and isinstance(fields.inputs[0], str)
    form = Form(parameters, engine, tgi=asked.tgi, stream=stream)
    form.check(several=listed)
    prompts = prompts_of(fields.inputs, parameters, engine, tgi=asked.tgi)
    best_of = parameters.best_of or 1
    answers = [
        form.answer(prompt, model) for prompt, model in zip(prompts, models, strict=True) for _ in range(best_of)
    ]
    generations, replies = tuple(generation for generation, _ in answers), [reply for _, reply in answers]
    if best_of > 1:
        return MultipleCall(generations, BestOfReply(replies, tgi=asked.tgi))
    if listed:
        return MultipleCall(generations, ListReply(replies))
    return framed(Call(*answers[0]), asked.framing(TGI if asked.tgi else LMI, parameters.output_formatter))


@dataclass(frozen=True, slots=True)
class Form:
    """What all the generations of one body share."""

    parameters: Parameters
    engine: Engine
    tgi: bool
    stream: bool

    def check(self, *, several: bool) -> None:
        """What does not go together, and what this engine's device cannot tell.

        :raises ClientError: naming the field.
        """
        parameters, limits = self.parameters, self.engine.limits.sampling
        best_of = parameters.best_of or 1
        if self.stream and several:
            raise InvalidField("inputs", "a stream has one answer: send one text, or leave 'stream' out")
        if self.stream and parameters.decoder_input_details:
            raise UnsupportedField("parameters.decoder_input_details", "it does not go with 'stream'")
        if best_of > 1:
            if self.stream or several:
                raise UnsupportedField("parameters.best_of", "it goes with one text and without 'stream'")
            if greedy(parameters, tgi=self.tgi):
                raise InvalidField("parameters.best_of", "without sampling all answers are the same: set 'do_sample'")
            if parameters.seed is not None:
                raise InvalidField("parameters.best_of", "with a 'seed' all answers are the same: leave one out")
        for name, wanted in (("best_of", best_of > 1), ("top_n_tokens", parameters.top_n_tokens)):
            if wanted and not limits.logprobs:
                raise UnsupportedField(f"parameters.{name}", "the device that samples tells no log probabilities")
        if parameters.decoder_input_details and not limits.prompt_logprobs:
            raise UnsupportedField("parameters.decoder_input_details", "this line of vLLM and Neuron tells none")

    def answer(self, prompt: Prompt, model: str | None) -> tuple[Generation, InputsReply]:
        """A generation and the reply to it, which hears its log probabilities."""
        parameters, engine = self.parameters, self.engine
        details = bool(parameters.details or parameters.decoder_input_details)
        reported = Reported(
            tgi=self.tgi,
            prefix=prompt.prefix,
            details=details,
            top_n_tokens=parameters.top_n_tokens or 0,
            seed=parameters.seed,
            prompt=prompt.ids if parameters.decoder_input_details else (),
            prompt_tokens=len(prompt.ids),
        )
        reply = InputsReply(reported, TokenText(engine.prompts.tokenizer))
        logprobs = None
        if engine.limits.sampling.logprobs and (self.stream or details or (parameters.best_of or 1) > 1):
            logprobs = parameters.top_n_tokens or 0
        sampling = sampling_of(parameters, engine.limits.max_model_len - len(prompt.ids), logprobs, tgi=self.tgi)
        scores = None if logprobs is None else reply
        name = f"gen-{uuid.uuid4().hex}"
        return Generation(name, prompt.ids, sampling, self.stream, scores, model, apart=self.stream), reply
