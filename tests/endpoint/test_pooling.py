"""Endpoints whose model scores pairs of texts or classifies: the same numbers as transformers computes."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

import sample_model
from tests.endpoint.serve_process import ServeProcess

if TYPE_CHECKING:
    import torch

pytestmark = pytest.mark.engine

QUERY = "What does /ping mean?"
DOCUMENTS = ["The endpoint is ready.", "Paris is a city.", "a"]


class Classifier:
    """The sample model with a head of random weights that classifies, and what transformers computes with it."""

    def __init__(self, directory: Path, labels: int) -> None:
        import torch
        from transformers import AutoTokenizer, LlamaConfig, LlamaForSequenceClassification

        torch.manual_seed(labels)
        config = LlamaConfig.from_pretrained(sample_model.path(), num_labels=labels, dtype="float32")
        self.model = LlamaForSequenceClassification.from_pretrained(sample_model.path(), config=config).float().eval()
        self.tokenizer = AutoTokenizer.from_pretrained(sample_model.path())
        self.directory = directory
        self.model.save_pretrained(directory)
        self.tokenizer.save_pretrained(directory)
        # As older tokenizers have it: the model takes no token types, and the engine must not get any.
        path = directory / "tokenizer_config.json"
        names = {"model_input_names": ["input_ids", "token_type_ids", "attention_mask"]}
        path.write_text(json.dumps(json.loads(path.read_text()) | names))

    def logits(self, *texts: str) -> torch.Tensor:
        import torch

        with torch.no_grad():
            return self.model(**self.tokenizer(*texts, return_tensors="pt")).logits[0]


@pytest.fixture(scope="module", params=[1, 3], ids=["cross-encoder", "classifier"])
def served(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    directory = tmp_path_factory.mktemp("pooling")
    classifier = Classifier(directory / "model", request.param)
    environment = {
        "ENDPOINT_MODEL": str(classifier.directory),
        "ENDPOINT_SCRATCH": str(directory / "scratch"),
        "SM_VLLM_SERVED_MODEL_NAME": "sample",
        "SM_VLLM_DTYPE": "float32",
    }
    with ServeProcess(directory, environment).serving() as endpoint:
        yield endpoint, classifier


def post(endpoint: ServeProcess, path: str, body: object, **headers: str) -> Any:
    reply = endpoint.client.post(path, json=body, headers=headers)
    assert reply.status_code == 200, reply.text
    return reply.json()


def test_the_numbers_are_those_of_transformers(served: tuple[ServeProcess, Classifier]) -> None:
    import torch

    endpoint, classifier = served
    if classifier.model.config.num_labels == 1:
        expected = [float(torch.sigmoid(classifier.logits(QUERY, text))[0]) for text in DOCUMENTS]
        body: dict[str, Any] = {"query": QUERY, "documents": DOCUMENTS}
        ranked = sorted(range(len(DOCUMENTS)), key=lambda index: -expected[index])
        for path in ("/rerank", "/v1/rerank", "/v2/rerank", "/invocations"):
            results = post(endpoint, path, body)["results"]
            assert [item["index"] for item in results] == ranked
            scores = {item["index"]: item["relevance_score"] for item in results}
            assert [scores[index] for index in range(3)] == pytest.approx(expected, abs=1e-3)
        assert [item["index"] for item in post(endpoint, "/rerank", {**body, "top_n": 1})["results"]] == ranked[:1]
        for pair in ({"text_1": QUERY, "text_2": DOCUMENTS}, {"queries": QUERY, "documents": DOCUMENTS}):
            for path in ("/score", "/v1/score", "/invocations"):
                found = [item["score"] for item in post(endpoint, path, pair)["data"]]
                assert found == pytest.approx(expected, abs=1e-3)
    else:
        expected_each = [torch.softmax(classifier.logits(text), -1).tolist() for text in DOCUMENTS]
        header = {"X-Amzn-SageMaker-Custom-Attributes": "route=/classify"}
        for reply in (
            post(endpoint, "/classify", {"input": DOCUMENTS}),
            post(endpoint, "/invocations", {"input": DOCUMENTS}),
            post(endpoint, "/invocations", {"input": DOCUMENTS}, **header),
        ):
            assert [len(item["probs"]) for item in reply["data"]] == [3, 3, 3]
            for item, probabilities in zip(reply["data"], expected_each, strict=True):
                assert item["probs"] == pytest.approx(probabilities, abs=1e-3)
    pooled = post(endpoint, "/pooling", {"input": DOCUMENTS[0], "task": "classify"})["data"][0]["data"]
    assert len(pooled) == classifier.model.config.num_labels


@pytest.mark.parametrize(
    ("path", "body", "named"),
    [
        ("/rerank", {"documents": ["a"]}, "query"),
        ("/rerank", {"query": "a"}, "documents"),
        ("/rerank", {"query": "a", "documents": ["a"] * 5000}, "documents"),
        ("/rerank", {"query": "a", "documents": 5}, "documents"),
        ("/score", {"text_2": "a"}, "queries"),
        ("/score", {"text_1": "a"}, "text_2"),
        ("/score", {"text_1": "a", "text_2": "a", "stream": True}, "stream"),
        ("/classify", {"input": []}, "input"),
        ("/classify", {"input": [99_999_999]}, "input"),
        ("/pooling", {"input": "a", "encoding_format": "bytes"}, "encoding_format"),
        ("/pooling", {"input": "a", "task": "dance"}, "task"),
        ("/v1/embeddings", {"input": "a"}, "/classify"),
        ("/v1/chat/completions", {"messages": [{"role": "user", "content": "a"}]}, "/classify"),
    ],
)
def test_what_cannot_be_answered_is_a_400_that_names_why(
    served: tuple[ServeProcess, Classifier], path: str, body: dict[str, Any], named: str
) -> None:
    endpoint, classifier = served
    reply = endpoint.client.post(path, json=body)
    error = reply.json()["error"]
    if path in ("/rerank", "/score") and classifier.model.config.num_labels > 1 and error["param"] == path:
        named = "has other tasks"
    assert (reply.status_code, named in reply.text) == (400, True), reply.text
    assert endpoint.ping() == (200, "")
