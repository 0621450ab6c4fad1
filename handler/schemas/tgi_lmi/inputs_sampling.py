"""Translates the sampling parameters of TGI and LMI to those of the engine."""

from __future__ import annotations

from handler.engine.generation.generation import Sampling
from handler.engine.generation.request_limits import RequestLimits
from handler.errors import InvalidField
from handler.schemas.openai.completion import default_max_tokens
from handler.schemas.openai.sampling_fields import sampler_arguments, stop_strings
from handler.schemas.tgi_lmi.inputs_fields import Parameters, grammar_of

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
