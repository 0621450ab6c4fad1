"""The JSON Schemas of vLLM's request and reply models, for the OpenAPI document. Tested on 0.16.0."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from pydantic import BaseModel
from vllm.entrypoints.openai.chat_completion.protocol import ChatCompletionResponse
from vllm.entrypoints.openai.completion.protocol import CompletionResponse
from vllm.entrypoints.openai.responses.protocol import ResponsesResponse
from vllm.entrypoints.pooling.classify.protocol import ClassificationResponse
from vllm.entrypoints.pooling.embed.protocol import EmbeddingResponse
from vllm.entrypoints.pooling.pooling.protocol import PoolingResponse
from vllm.entrypoints.serve.tokenize.protocol import DetokenizeResponse, TokenizeResponse

from handler.engine.api_routes import Route

try:
    from vllm.entrypoints.speech_to_text.transcription.protocol import TranscriptionResponse
    from vllm.entrypoints.speech_to_text.translation.protocol import TranslationResponse

    SPEECH: Mapping[Route, type[BaseModel]] = {
        Route.TRANSCRIPTIONS: TranscriptionResponse,
        Route.TRANSLATIONS: TranslationResponse,
    }
except ImportError:  # before 0.24.0
    SPEECH = {}

try:
    from vllm.entrypoints.pooling.score.protocol import RerankResponse, ScoreResponse
except ImportError:
    from vllm.entrypoints.pooling.scoring.protocol import RerankResponse, ScoreResponse  # 0.24.0

Schema = dict[str, Any]
REPLIES: Mapping[Route, type[BaseModel]] = {
    Route.CHAT: ChatCompletionResponse,
    Route.COMPLETIONS: CompletionResponse,
    Route.RESPONSES: ResponsesResponse,
    Route.EMBEDDINGS: EmbeddingResponse,
    Route.TOKENIZE: TokenizeResponse,
    Route.DETOKENIZE: DetokenizeResponse,
    Route.SCORE: ScoreResponse,
    Route.RERANK: RerankResponse,
    Route.CLASSIFY: ClassificationResponse,
    Route.POOLING: PoolingResponse,
    **SPEECH,
}
# A reply's model may have the same name as a different model of a request, so they get different prefixes.
REQUEST_REF = "#/components/schemas/vllm.{model}"
REPLY_REF = "#/components/schemas/vllm.reply.{model}"


def schemas(
    requests: Mapping[Route, Mapping[str, type[BaseModel]]],
) -> tuple[dict[Route, Schema], dict[Route, Schema], dict[str, Schema]]:
    """The schemas of each route's body, of each route's reply, and of the models to which they refer."""
    parts: dict[str, Schema] = {}
    bodies: dict[Route, Schema] = {}
    for route, models in ((route, models) for route, models in requests.items() if models):
        alternatives = [
            _extract(model.model_json_schema(ref_template=REQUEST_REF), "vllm.", parts) for model in models.values()
        ]
        bodies[route] = alternatives[0] if len(alternatives) == 1 else {"anyOf": alternatives}
    replies = {
        route: _extract(model.model_json_schema(mode="serialization", ref_template=REPLY_REF), "vllm.reply.", parts)
        for route, model in REPLIES.items()
    }
    return bodies, replies, parts


def _extract(schema: Schema, prefix: str, parts: dict[str, Schema]) -> Schema:
    """Moves the definitions of a schema to `parts`, and returns the rest."""
    parts.update({prefix + name: part for name, part in schema.pop("$defs", {}).items()})
    return schema
