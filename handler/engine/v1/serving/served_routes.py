"""Which of vLLM's serving objects answers each route, with which models of requests and replies. Tested on 0.16.0 to
0.32.0.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from pydantic import BaseModel
from vllm.entrypoints.openai.chat_completion.protocol import ChatCompletionRequest, ChatCompletionResponse
from vllm.entrypoints.openai.completion.protocol import CompletionRequest, CompletionResponse
from vllm.entrypoints.openai.responses.protocol import ResponsesRequest, ResponsesResponse
from vllm.entrypoints.pooling.classify.protocol import (
    ClassificationChatRequest,
    ClassificationCompletionRequest,
    ClassificationResponse,
)
from vllm.entrypoints.pooling.embed.protocol import EmbeddingChatRequest, EmbeddingCompletionRequest, EmbeddingResponse
from vllm.entrypoints.pooling.pooling.protocol import PoolingChatRequest, PoolingCompletionRequest, PoolingResponse
from vllm.entrypoints.serve.tokenize.protocol import (
    DetokenizeRequest,
    DetokenizeResponse,
    TokenizeChatRequest,
    TokenizeCompletionRequest,
    TokenizeResponse,
)

from handler.engine.api_routes import TRANSCRIBE, Route

try:
    from vllm.entrypoints.pooling.score import protocol as scoring
except ImportError:
    from vllm.entrypoints.pooling.scoring import protocol as scoring  # 0.24.0

try:
    from vllm.entrypoints.speech_to_text.transcription import protocol as transcription
    from vllm.entrypoints.speech_to_text.translation import protocol as translation
except ImportError:  # 0.16.0 decodes audio on the event loop, and without a limit of its length
    transcription = translation = None


@dataclass(frozen=True, slots=True)
class ServedRoute:
    """How one route is served by vLLM.

    :param state: the names of vLLM's serving object. Versions have different names.
    :param method: the method that answers a request. Of a pooling model on 0.24.0 and later, the object itself answers.
    :param models: vLLM's request models, by the key that a body must have. "" is for all other bodies. Empty: this
        version's are not known.
    :param reply: vLLM's model of a whole reply. None: this version's is not known.
    :param tasks: the model must have one of these tasks. Empty: any model will do.
    :param since: the first version whose models are known.
    """

    state: tuple[str, ...]
    method: str
    models: Mapping[str, type[BaseModel]]
    reply: type[BaseModel] | None
    tasks: frozenset[str] = frozenset()
    since: str = "0.16"


GENERATE: Final = frozenset({"generate"})
SCORES: Final = frozenset({"score", "embed", "token_embed"})
HEARS: Final = frozenset({TRANSCRIBE})
POOLING: Final = frozenset({"embed", "classify", "score", "token_embed", "token_classify", "plugin"})
SCORING: Final = ("openai_serving_scores", "serving_scores")  # 0.24.0
TOKENIZATION: Final = ("openai_serving_tokenization", "serving_tokenization")  # 0.24.0
SERVED_ROUTES: Final[Mapping[Route, ServedRoute]] = {
    Route.CHAT: ServedRoute(
        ("openai_serving_chat",),
        "create_chat_completion",
        {"": ChatCompletionRequest},
        ChatCompletionResponse,
        GENERATE,
    ),
    Route.COMPLETIONS: ServedRoute(
        ("openai_serving_completion",), "create_completion", {"": CompletionRequest}, CompletionResponse, GENERATE
    ),
    Route.RESPONSES: ServedRoute(
        ("openai_serving_responses",), "create_responses", {"": ResponsesRequest}, ResponsesResponse, GENERATE
    ),
    Route.EMBEDDINGS: ServedRoute(
        ("openai_serving_embedding", "serving_embedding"),
        "create_embedding",
        {"messages": EmbeddingChatRequest, "": EmbeddingCompletionRequest},
        EmbeddingResponse,
        frozenset({"embed"}),
    ),
    Route.TOKENIZE: ServedRoute(
        TOKENIZATION,
        "create_tokenize",
        {"messages": TokenizeChatRequest, "": TokenizeCompletionRequest},
        TokenizeResponse,
    ),
    Route.DETOKENIZE: ServedRoute(TOKENIZATION, "create_detokenize", {"": DetokenizeRequest}, DetokenizeResponse),
    Route.SCORE: ServedRoute(
        SCORING,
        "create_score",
        {
            "text_1": scoring.ScoreTextRequest,
            "data_1": scoring.ScoreDataRequest,
            "items": scoring.ScoreQueriesItemsRequest,
            "": scoring.ScoreQueriesDocumentsRequest,
        },
        scoring.ScoreResponse,
        SCORES,
    ),
    Route.RERANK: ServedRoute(SCORING, "do_rerank", {"": scoring.RerankRequest}, scoring.RerankResponse, SCORES),
    Route.CLASSIFY: ServedRoute(
        ("openai_serving_classification", "serving_classification"),
        "create_classify",
        {"messages": ClassificationChatRequest, "": ClassificationCompletionRequest},
        ClassificationResponse,
        frozenset({"classify"}),
    ),
    Route.POOLING: ServedRoute(
        ("openai_serving_pooling", "serving_pooling"),
        "create_pooling",
        {"messages": PoolingChatRequest, "": PoolingCompletionRequest},
        PoolingResponse,
        POOLING,
    ),
    Route.TRANSCRIPTIONS: ServedRoute(
        ("openai_serving_transcription",),
        "create_transcription",
        {"": transcription.TranscriptionRequest} if transcription else {},
        transcription and transcription.TranscriptionResponse,
        HEARS,
        since="0.24",
    ),
    Route.TRANSLATIONS: ServedRoute(
        ("openai_serving_translation",),
        "create_translation",
        {"": translation.TranslationRequest} if translation else {},
        translation and translation.TranslationResponse,
        HEARS,
        since="0.24",
    ),
}
Schema = dict[str, Any]
# A reply's model may have the same name as a different model of a request, so they get different prefixes.
REQUEST: Final = "vllm."
REPLY: Final = "vllm.reply."


def schemas() -> tuple[dict[Route, Schema], dict[Route, Schema], dict[str, Schema]]:
    """The JSON Schemas of each route's body, of each route's reply, and of the models to which they refer."""
    bodies, replies, parts = dict[Route, Schema](), dict[Route, Schema](), dict[str, Schema]()
    for route, api in SERVED_ROUTES.items():
        if api.models:
            alternatives = [_schema(model, REQUEST, parts) for model in api.models.values()]
            bodies[route] = alternatives[0] if len(alternatives) == 1 else {"anyOf": alternatives}
        if api.reply is not None:
            replies[route] = _schema(api.reply, REPLY, parts)
    return bodies, replies, parts


def _schema(model: type[BaseModel], prefix: str, parts: dict[str, Schema]) -> Schema:
    """The schema of a model. The definitions to which it refers are moved to `parts`."""
    mode: Final = "serialization" if prefix == REPLY else "validation"
    schema = model.model_json_schema(mode=mode, ref_template=f"#/components/schemas/{prefix}{{model}}")
    parts.update({prefix + name: part for name, part in schema.pop("$defs", {}).items()})
    return schema
