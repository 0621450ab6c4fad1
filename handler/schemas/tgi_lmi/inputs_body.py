"""Parses the body of TGI and of DJL's LMI: `{"inputs": ..., "parameters": {...}, "stream": ...}`.

`inputs` is a text, a list of texts (several generations, answered in order), or messages. TGI and LMI differ in some
points. `RequestOptions` decides which of them applies; docs/requests.md has the table.
"""

from __future__ import annotations

import secrets
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from handler.engine.engine import Engine
from handler.engine.generation import sampling_check
from handler.engine.generation.generation import Generation
from handler.engine.generation.token_pieces import TokenText
from handler.errors import InvalidField, MissingField, UnsupportedField
from handler.schemas.framing import framed
from handler.schemas.multiple_generations import MultipleCall
from handler.schemas.openai.model_names import check_model
from handler.schemas.openai.sampling_fields import convert
from handler.schemas.reply import AnyCall, Call
from handler.schemas.tgi_lmi.inputs_fields import LMI, MAX_TEXTS, TGI, InputsFields, Parameters
from handler.schemas.tgi_lmi.inputs_reply import BestOfReply, InputsReply, ListReply, ReplyOptions
from handler.schemas.tgi_lmi.inputs_sampling import Prompt, greedy, prompts_of, sampling_of
from handler.schemas.tgi_lmi.request_options import RequestOptions


def parse(document: Mapping[str, Any], engine: Engine, options: RequestOptions | None = None) -> AnyCall:
    """Parses a TGI or LMI body.

    :param options: whether TGI or LMI applies, and how a stream is framed.
    :raises ClientError: a field is wrong. The error names it.
    """
    if document.get("inputs") is None:
        raise MissingField("inputs", "send a text, a list of texts, or messages")
    options = options or RequestOptions()
    fields = convert(document, InputsFields)
    parameters = convert(fields.parameters or {}, Parameters, "parameters.")
    named_by, models = fields.models(parameters)
    for model in models:
        check_model(model, engine.served_names, named_by)
    listed = isinstance(fields.inputs, list) and isinstance(fields.inputs[0], str)
    best_of = parameters.best_of or 1
    sequences, most = len(fields.inputs) if listed else best_of, min(MAX_TEXTS, engine.max_sequences)
    if sequences > most:
        name = "inputs" if listed else "parameters.best_of"
        raise InvalidField(name, f"it requests {sequences} sequences; at most {most} are allowed")
    streams = not listed and best_of == 1  # several answers cannot be a stream
    formatter = parameters.output_formatter or (options.output_formatter if streams else None)
    stream = bool(fields.stream) if formatter is None else formatter != "json"
    shared = SharedParameters(parameters, engine, tgi=options.tgi, stream=stream)
    shared.check(several=listed)
    prompts = prompts_of(fields.inputs, parameters, engine, tgi=options.tgi)
    answers = [
        shared.generation(prompt, model) for prompt, model in zip(prompts, models, strict=True) for _ in range(best_of)
    ]
    generations, replies = tuple(generation for generation, _ in answers), [reply for _, reply in answers]
    if best_of > 1:
        return MultipleCall(generations, BestOfReply(replies, tgi=options.tgi))
    if listed:
        return MultipleCall(generations, ListReply(replies))
    return framed(Call(*answers[0]), options.framing(TGI if options.tgi else LMI, parameters.output_formatter))


@dataclass(frozen=True, slots=True)
class SharedParameters:
    """What all the generations of one body share."""

    parameters: Parameters
    engine: Engine
    tgi: bool
    stream: bool

    def check(self, *, several: bool) -> None:
        """Checks combinations of parameters, and whether the device supports them.

        :param several: whether `inputs` is a list of texts.
        :raises ClientError: a parameter is wrong. The error names it.
        """
        parameters, limits = self.parameters, self.engine.limits.sampling
        best_of = parameters.best_of or 1
        if self.stream and several:
            raise InvalidField("inputs", "a stream has only one answer: send one text, or leave 'stream' out")
        if self.stream and parameters.decoder_input_details:
            raise UnsupportedField(
                "parameters.decoder_input_details", "it cannot be combined with 'stream': leave one of the two out"
            )
        if best_of > 1:
            if self.stream or several:
                raise UnsupportedField("parameters.best_of", "it needs a single text and no 'stream'")
            if greedy(parameters, tgi=self.tgi) or parameters.temperature == 0 or parameters.top_k == 1:
                why = "without sampling all answers are the same: set 'do_sample', and no 'temperature' 0 and 'top_k' 1"
                raise InvalidField("parameters.best_of", why)
            if parameters.seed is not None:
                raise InvalidField(
                    "parameters.best_of", "with a 'seed' all answers are the same: leave one of the two out"
                )
        for name, requested in (("best_of", best_of > 1), ("top_n_tokens", parameters.top_n_tokens)):
            if requested and not limits.logprobs:
                why = f"this endpoint returns no log probabilities: {sampling_check.fix(limits, 'logprobs')}"
                raise UnsupportedField(f"parameters.{name}", why)
        if parameters.decoder_input_details and not limits.prompt_logprobs:
            raise UnsupportedField(
                "parameters.decoder_input_details",
                "this endpoint returns no log probabilities of a prompt",
            )

    def generation(self, prompt: Prompt, model: str | None) -> tuple[Generation, InputsReply]:
        """A generation and its reply, which receives the log probabilities."""
        parameters, engine = self.parameters, self.engine
        top = parameters.top_n_tokens or 0
        details = bool(parameters.details or parameters.decoder_input_details or (top and not self.stream))
        reply_options = ReplyOptions(
            tgi=self.tgi,
            inputs=prompt.text,
            prefix=prompt.prefix,
            details=details,
            top_n_tokens=top,
            seed=parameters.seed,
            prompt=prompt.ids,
            prefill=bool(parameters.decoder_input_details),
            stop_token_ids=parameters.stop_token_ids or (),
        )
        reply = InputsReply(reply_options, TokenText(engine.prompts.tokenizer))
        logprobs = None
        if engine.limits.sampling.logprobs and (self.stream or details or (parameters.best_of or 1) > 1):
            logprobs = top
        sampling = sampling_of(parameters, engine.limits, len(prompt.ids), logprobs, tgi=self.tgi)
        scores = None if logprobs is None else reply.receive
        name = f"gen-{secrets.token_hex(16)}"
        generation = Generation(
            name, prompt.ids, sampling, self.stream, scores, model, apart=self.stream, names=_names(parameters)
        )
        return generation, reply


def _names(parameters: Parameters) -> dict[str, str]:
    """The fields that ask for log probabilities, by the engine's names."""
    names = (name for name in ("top_n_tokens", "details", "decoder_input_details") if getattr(parameters, name))
    prompt = "parameters.decoder_input_details"
    return {"logprobs": f"parameters.{next(names, 'best_of')}", "prompt_logprobs": prompt, "echo": prompt}
