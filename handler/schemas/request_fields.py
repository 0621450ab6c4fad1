"""One table of the fields of request bodies: what the names of OpenAI's, Anthropic's, TGI's and LMI's APIs, and of
transformers' `generate`, mean in each kind of body. docs/requests.md has the table as a page (`make docs`).

A name is honoured, rejected with an error that says what to send, or has no effect. A name that nobody knows has none
either. The reply's header lists the names without an effect: none is ignored silently.

Sources: docs.vllm.ai (0.16), platform.openai.com/docs/api-reference, docs.anthropic.com/en/api/messages, djl-serving
(lmi_input_output_schema.md), text-generation-inference (router/src/lib.rs), transformers' GenerationConfig (4.57).
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from functools import cache, lru_cache
from typing import Any, Final

from handler.errors import UnknownField, UnsupportedField
from handler.schemas import body_limits


class Body(StrEnum):
    """A kind of body. PARAMETERS is the object of that name in an INPUTS body, ROUTES are the other routes of vLLM."""

    CHAT = "chat"
    COMPLETION = "completion"
    RESPONSE = "response"
    MESSAGE = "message"
    INPUTS = "inputs"
    PARAMETERS = "parameters"
    ROUTES = "routes"


@dataclass(frozen=True, slots=True)
class FieldRow:
    """Names that mean the same, or have the same places. A name is in one row.

    Of each kind of body the row has the names that are honoured, separated by spaces. "=" are those of a chat. In chats
    and completions, "~" marks names that only vLLM's serving classes honour.

    :param also: names that no body honours.
    :param neutral: values that ask for nothing, with those in EMPTY.
    :param fix: what to do where no name is honoured.
    :param harmless: nothing here depends on the names, so they are accepted where they are not honoured.
    """

    chat: str = ""
    completion: str = ""
    response: str = ""
    message: str = ""
    parameters: str = ""
    also: str = ""
    neutral: tuple[object, ...] = ()
    fix: str = ""
    inputs: str = ""
    routes: str = ""
    harmless: bool = False

    def names(self, body: Body) -> list[str]:
        """The names that a kind of body honours, without marks."""
        column = str(getattr(self, body))
        return (self.chat if column == "=" else column).replace("~", "").split()

    def every_name(self) -> list[str]:
        return sorted({*(name for body in Body for name in self.names(body)), *self.also.split()})


EMPTY: Final[tuple[object, ...]] = (None, [], {}, "")
NO, ONE, ZERO, AUTO = (False,), (1, 1.0), (0, 0.0), ("none", "auto")
DRAFTS: Final = "speculative decoding is a setting of the endpoint (docs/settings.md): leave it out"
UPWARDS: Final = "put its fields into the body itself, or at /invocations beside 'inputs' into 'parameters'"
ADAPTER_NAMES: Final = "adapter adapter_name lora lora_id lora_name lora_adapter"

TABLE: Final = (
    # The prompt, and the model that continues it.
    FieldRow("messages", "prompt", "input", "messages", inputs="inputs", harmless=True),
    FieldRow("model", "=", "=", "=", "adapter_id", ADAPTER_NAMES, inputs="model adapters", routes="="),
    FieldRow(also="lora_request lora_path lora_modules", fix="load the adapter, and send its name as 'model'"),
    FieldRow(response="instructions", message="system", fix="send a message of the role 'system'"),
    FieldRow("chat_template_kwargs ~chat_template ~documents add_generation_prompt continue_final_message"),
    FieldRow("~mm_processor_kwargs", response="="),
    FieldRow(completion="~prompt_embeds"),
    FieldRow("add_special_tokens", "="),
    FieldRow("stream_options", "=", neutral=({"include_obfuscation": False},)),
    FieldRow("stream", "=", "=", "=", inputs="=", neutral=NO),
    FieldRow("~truncate_prompt_tokens", "=", "truncation", "", "truncate"),
    # How many tokens, and how they are sampled.
    FieldRow(
        *("max_tokens max_completion_tokens", "max_tokens", "max_output_tokens", "max_tokens", "max_new_tokens"),
        also="max_length",
    ),
    FieldRow("min_tokens", "=", "", "", "=", "min_new_tokens min_length", ZERO),
    FieldRow("temperature", "=", "=", "=", "="),
    FieldRow("top_p", "=", "=", "=", "=", neutral=ONE),
    FieldRow("top_k", "=", "=", "=", "=", neutral=(0, -1)),
    FieldRow("repetition_penalty", "=", "=", "", "=", neutral=ONE),
    FieldRow("min_p frequency_penalty presence_penalty", "=", "", "", "=", neutral=ZERO),
    FieldRow("seed", "=", "=", "", "="),
    FieldRow(parameters="do_sample", neutral=(True,), fix="send 'temperature': 0 for greedy decoding"),
    FieldRow("~logit_bias", "=", "=", also="suppress_tokens begin_suppress_tokens"),
    FieldRow("~bad_words", also="bad_words_ids"),
    FieldRow("~allowed_token_ids ~kv_transfer_params", "="),
    FieldRow("~priority ~cache_salt ~request_id ~vllm_xargs", "=", "=", neutral=ZERO),
    FieldRow("~use_beam_search", "=", also="num_beams", neutral=(False, 1)),
    FieldRow("~length_penalty", "=", neutral=ONE),
    FieldRow("stop", "=", "=", "stop_sequences", "stop stop_sequences", "stop_strings"),
    FieldRow("stop_token_ids", "=", "", "", "=", "eos_token_id"),
    FieldRow("ignore_eos", "=", "=", "", "ignore_eos_token", neutral=NO),
    # What the reply has.
    FieldRow("~n", "=", "", "", "best_of", "num_return_sequences", ONE),
    FieldRow("~logprobs", "=", "", "", "details", neutral=NO),
    FieldRow("~top_logprobs", "", "=", "", "top_n_tokens", neutral=ZERO),
    FieldRow("~prompt_logprobs", "=", "", "", "decoder_input_details", neutral=NO),
    FieldRow("~echo", "=", "", "", "return_full_text", neutral=NO),
    FieldRow("~return_token_ids ~return_tokens_as_token_ids", "=", neutral=NO),
    FieldRow("include_stop_str_in_output skip_special_tokens", "=", "=", "", "="),
    FieldRow("spaces_between_special_tokens", "=", "", "", "="),
    FieldRow(parameters="output_formatter"),
    FieldRow(
        "~structured_outputs ~response_format ~guided_json ~guided_regex ~guided_choice ~guided_grammar "
        "~guided_whitespace_pattern",
        *("=", "text", "output_config", "grammar", "output_format", ({"type": "text"},)),
    ),
    # Tools and reasoning.
    FieldRow("~tools", "", "=", "tools", also="functions"),
    FieldRow("~tool_choice", "", "=", "tool_choice", also="function_call", neutral=AUTO),
    FieldRow("parallel_tool_calls", response="="),
    FieldRow("include_reasoning"),
    FieldRow("~reasoning_effort", "", "reasoning", "thinking"),
    FieldRow(
        also="enable_thinking thinking_budget", fix="send 'chat_template_kwargs' in a chat, 'thinking' in a message"
    ),
    # Objects that hold fields, and what is not here.
    FieldRow(inputs="parameters", fix=UPWARDS),
    FieldRow(also="extra_body model_kwargs generation_config generate_kwargs sampling_params", fix=UPWARDS),
    FieldRow(response="include previous_response_id background enable_response_messages", neutral=NO),
    FieldRow(response="previous_input_messages"),
    FieldRow(also="conversation context_management compaction thread container fallbacks mcp_servers"),
    FieldRow(also="web_search_options audio verbosity"),
    FieldRow(also="modalities", neutral=(["text"],)),
    FieldRow(also="logits_processors guided_decoding_backend bad_sequences cached_prompt prefix suffix max_time"),
    FieldRow(also="early_stopping watermark renormalize_logits remove_invalid_values token_healing", neutral=NO),
    FieldRow(also="output_scores output_logits output_attentions output_hidden_states return_tensors", neutral=NO),
    FieldRow(also="typical_p encoder_repetition_penalty guidance_scale num_beam_groups", neutral=ONE),
    FieldRow(also="diversity_penalty epsilon_cutoff eta_cutoff no_repeat_ngram_size penalty_alpha", neutral=ZERO),
    FieldRow(also="encoder_no_repeat_ngram_size", neutral=ZERO),
    FieldRow(also="force_words_ids constraints sequence_bias exponential_decay_length_penalty watermarking_config"),
    FieldRow(also="forced_bos_token_id forced_eos_token_id decoder_start_token_id handle_long_generation low_memory"),
    FieldRow(
        also="prompt_lookup_num_tokens max_matching_ngram_size num_assistant_tokens speculative_config", fix=DRAFTS
    ),
    FieldRow(also="assistant_model assistant_confidence_threshold assistant_early_exit", fix=DRAFTS),
    # Without an effect. litellm's SageMaker providers put the last two into the body (llms/sagemaker, 1.106).
    FieldRow(response="metadata store service_tier user", harmless=True),
    FieldRow(message="anthropic_version", harmless=True),
    FieldRow(also="safety_identifier prompt_cache_key prompt_cache_retention prediction inference_geo", harmless=True),
    FieldRow(also="anthropic_beta cache_control speed user_profile_id workspace_id diagnostics", harmless=True),
    FieldRow(also="pad_token_id bos_token_id use_cache return_dict_in_generate", harmless=True),
    FieldRow(also="max_tool_calls", harmless=True),  # of tools that the endpoint itself would run
    FieldRow(also="sagemaker_base_url model_id", harmless=True),
)
# The keys of a message that is plain text. vLLM's classes read more.
MESSAGE_KEYS: Final = frozenset({"role", "content", "name"})
# The most unknown names that are compared with all known ones and that a header lists; and the longest.
MAX_UNKNOWN: Final = 32
MAX_NAME: Final = 64


@dataclass(frozen=True, slots=True)
class Meaning:
    """What one name means in one kind of body.

    :param plain: it is honoured without vLLM's classes.
    :param fix: what the error says if it is not honoured. "": it is harmless.
    :param newer: a vLLM whose own request model has the name honours it.
    """

    honoured: bool
    plain: bool
    neutral: tuple[object, ...]
    fix: str
    newer: bool

    def has_effect(self, value: object) -> bool:
        return not any(value == none and type(value) is type(none) for none in self.neutral)


@cache
def meanings(body: Body) -> Mapping[str, Meaning]:
    """What each name of the table means in a kind of body. Other routes share a few rows only."""
    rows = [row for row in TABLE if body is not Body.ROUTES or row.routes]
    return {name: _meaning(row, name, body) for row in rows for name in row.every_name()}


def _meaning(row: FieldRow, name: str, body: Body) -> Meaning:
    names, beside = row.names(body), row.names(Body.PARAMETERS) if body is Body.INPUTS else []
    bodies = sorted(other for other in Body if name in row.names(other))
    fix = row.fix or "leave it out"
    if row.harmless:
        fix = ""
    elif names or beside:
        instead = names or [f"parameters.{other}" for other in ([name] if name in beside else beside)]
        fix = "send " + " or ".join(f"'{other}'" for other in instead[:2])
    elif body is Body.PARAMETERS and name in row.names(Body.INPUTS):
        fix = f"send '{name}' beside 'parameters'"
    elif bodies and not row.fix:
        fix = f"it is a field of other bodies ({', '.join(bodies)}): leave it out"
    marked = f"~{name}" in (*row.chat.split(), *row.completion.split())
    newer = bool(bodies) and not names and not row.harmless
    return Meaning(name in names, name in names and not marked, (*EMPTY, *row.neutral), fix, newer)


def unsupported(body: Body, *, vllm: bool) -> dict[str, tuple[object, ...]]:
    """The names that are rejected, or need vLLM's classes if there are none, each with the values without an effect."""
    table = meanings(body).items()
    return {name: field.neutral for name, field in table if field.fix and not (field.honoured if vllm else field.plain)}


def is_plain(body: Body, document: Mapping[str, Any]) -> bool:
    """Whether no field of the table needs vLLM's serving classes."""
    known = [(meaning, value) for name, value in document.items() if (meaning := meanings(body).get(name))]
    return all(meaning.plain or not meaning.fix or not meaning.has_effect(value) for meaning, value in known)


def resolve(
    body: Body, document: Mapping[str, Any], known: Callable[[], Collection[str]] = tuple, prefix: str = ""
) -> tuple[dict[str, Any], tuple[str, ...]]:
    """Applies the table: the fields that are honoured, and the names without an effect, fit for a header.

    :param known: the names that the installed vLLM's request model has.
    :param prefix: of the names in errors and of those without an effect.
    :raises UnsupportedField: a name that this body rejects has an effect. The error says what to send.
    :raises UnknownField: a name that nobody knows is almost a known one.
    :raises InvalidField: as `body_limits.check`.
    """
    table, kept, ignored, unknown = meanings(body), dict[str, Any](), list[str](), list[str]()
    for name, value in document.items():
        meaning = table.get(name)
        if (meaning and meaning.honoured) or ((meaning is None or meaning.newer) and name in known()):
            kept[name] = value
        elif meaning is None or not meaning.fix:
            ignored.append(prefix + name)
            unknown += [name] if meaning is None else []
        elif meaning.has_effect(value):
            raise UnsupportedField(prefix + name, meaning.fix)
    if unknown:
        check_near_misses(unknown, [*(name for name in table if table[name].honoured), *known()], prefix)
    if isinstance(kept.get("parameters"), dict):
        kept["parameters"], more = resolve(Body.PARAMETERS, kept["parameters"], prefix="parameters.")
        ignored += more
    if body is Body.INPUTS:
        ignored += _unread_keys(kept.get("inputs"))
    body_limits.check(kept, prefix)
    return kept, for_header(ignored)


def for_header(names: Sequence[str]) -> tuple[str, ...]:
    """Names that clients have sent, fit for a header."""
    return tuple(re.sub(r"[^\w.-]", "?", name[:MAX_NAME], flags=re.ASCII) for name in names[:MAX_UNKNOWN])


def _unread_keys(inputs: object) -> list[str]:
    """The keys of messages in `inputs` that have a value and no effect."""
    messages = [message for message in inputs if isinstance(message, dict)] if isinstance(inputs, list) else []
    sent = {name: None for message in messages for name, value in message.items() if value not in EMPTY}
    return [f"inputs.{name}" for name in sent if name not in MESSAGE_KEYS]


def check_near_misses(unknown: Collection[str], names: Collection[str], prefix: str = "") -> None:
    """:raises UnknownField: an unknown name is almost a known one."""
    known = tuple(names) if unknown else ()
    for name in [name for name in unknown if len(name) <= MAX_NAME][:MAX_UNKNOWN]:
        near = _near(name, known)
        if near:
            raise UnknownField(prefix + name, prefix + near[0])


@lru_cache(maxsize=1024)
def _near(name: str, names: tuple[str, ...]) -> list[str]:
    """The nearest name. Cached: a comparison takes up to 1 ms, and all lines of a body have the same unknown names."""
    return difflib.get_close_matches(name, names, n=1, cutoff=0.85)
