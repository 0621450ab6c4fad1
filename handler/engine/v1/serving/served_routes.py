"""Which of vLLM's serving objects answers each route, and with which request models. Tested on 0.16.0 to 0.32.0."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from pydantic import BaseModel
from vllm.entrypoints.openai.chat_completion.protocol import ChatCompletionRequest
from vllm.entrypoints.openai.completion.protocol import CompletionRequest
from vllm.entrypoints.openai.responses.protocol import ResponsesRequest
from vllm.entrypoints.pooling.classify.protocol import ClassificationChatRequest, ClassificationCompletionRequest
from vllm.entrypoints.pooling.embed.protocol import EmbeddingChatRequest, EmbeddingCompletionRequest
from vllm.entrypoints.pooling.pooling.protocol import PoolingChatRequest, PoolingCompletionRequest
from vllm.entrypoints.serve.tokenize.protocol import DetokenizeRequest, TokenizeChatRequest, TokenizeCompletionRequest

from handler.engine.api_routes import TRANSCRIBE, Route

try:
    from vllm.entrypoints.pooling.score import protocol as scoring
except ImportError:
    from vllm.entrypoints.pooling.scoring import protocol as scoring  # 0.24.0

try:
    from vllm.entrypoints.speech_to_text.transcription.protocol import TranscriptionRequest
    from vllm.entrypoints.speech_to_text.translation.protocol import TranslationRequest

    TRANSCRIPTIONS, TRANSLATIONS = {"": TranscriptionRequest}, {"": TranslationRequest}
except ImportError:  # 0.16.0 decodes audio on the event loop, and without a limit of its length
    TRANSCRIPTIONS = TRANSLATIONS = {}


@dataclass(frozen=True, slots=True)
class ServedRoute:
    """How one route is served by vLLM.

    :param state: the names of vLLM's serving object. Versions have different names.
    :param method: the method that answers a request. Of a pooling model on 0.24.0 and later, the object itself answers.
    :param models: vLLM's request models, by the key that a body must have. "" is for all other bodies. Empty: this
        version's are not known.
    :param tasks: the model must have one of these tasks. Empty: any model will do.
    :param since: the first version whose models are known.
    """

    state: tuple[str, ...]
    method: str
    models: Mapping[str, type[BaseModel]]
    tasks: frozenset[str] = frozenset()
    since: str = "0.16"


GENERATE: Final = frozenset({"generate"})
SCORES: Final = frozenset({"score", "embed", "token_embed"})
HEARS: Final = frozenset({TRANSCRIBE})
POOLING: Final = frozenset({"embed", "classify", "score", "token_embed", "token_classify", "plugin"})
SCORING: Final = ("openai_serving_scores", "serving_scores")  # 0.24.0
TOKENIZATION: Final = ("openai_serving_tokenization", "serving_tokenization")  # 0.24.0
SERVED_ROUTES: Final[Mapping[Route, ServedRoute]] = {
    Route.CHAT: ServedRoute(("openai_serving_chat",), "create_chat_completion", {"": ChatCompletionRequest}, GENERATE),
    Route.COMPLETIONS: ServedRoute(
        ("openai_serving_completion",), "create_completion", {"": CompletionRequest}, GENERATE
    ),
    Route.RESPONSES: ServedRoute(("openai_serving_responses",), "create_responses", {"": ResponsesRequest}, GENERATE),
    Route.EMBEDDINGS: ServedRoute(
        ("openai_serving_embedding", "serving_embedding"),
        "create_embedding",
        {"messages": EmbeddingChatRequest, "": EmbeddingCompletionRequest},
        frozenset({"embed"}),
    ),
    Route.TOKENIZE: ServedRoute(
        TOKENIZATION, "create_tokenize", {"messages": TokenizeChatRequest, "": TokenizeCompletionRequest}
    ),
    Route.DETOKENIZE: ServedRoute(TOKENIZATION, "create_detokenize", {"": DetokenizeRequest}),
    Route.SCORE: ServedRoute(
        SCORING,
        "create_score",
        {
            "text_1": scoring.ScoreTextRequest,
            "data_1": scoring.ScoreDataRequest,
            "items": scoring.ScoreQueriesItemsRequest,
            "": scoring.ScoreQueriesDocumentsRequest,
        },
        SCORES,
    ),
    Route.RERANK: ServedRoute(SCORING, "do_rerank", {"": scoring.RerankRequest}, SCORES),
    Route.CLASSIFY: ServedRoute(
        ("openai_serving_classification", "serving_classification"),
        "create_classify",
        {"messages": ClassificationChatRequest, "": ClassificationCompletionRequest},
        frozenset({"classify"}),
    ),
    Route.POOLING: ServedRoute(
        ("openai_serving_pooling", "serving_pooling"),
        "create_pooling",
        {"messages": PoolingChatRequest, "": PoolingCompletionRequest},
        POOLING,
    ),
    Route.TRANSCRIPTIONS: ServedRoute(
        ("openai_serving_transcription",), "create_transcription", TRANSCRIPTIONS, HEARS, since="0.24"
    ),
    Route.TRANSLATIONS: ServedRoute(
        ("openai_serving_translation",), "create_translation", TRANSLATIONS, HEARS, since="0.24"
    ),
}
