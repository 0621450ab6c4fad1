"""TGI and LMI bodies over the real engine: exact text, true log probabilities, and parts that add up."""

from __future__ import annotations

import json
import math
from typing import Any

import pytest

from sample_model.facts import by_name
from tests.endpoint.serve_process import ServeProcess

pytestmark = pytest.mark.engine

QUESTION = "What does /ping mean?"
PLAIN = f"Question: {QUESTION}\nAnswer:"
LINES, EVENTS = "application/jsonlines", "text/event-stream"
LONG = {"max_new_tokens": 100}
GRAMMAR = {"type": "regex", "value": "(yes|no)"}


def answer() -> str:
    return by_name("ping").answer


def ask(endpoint: ServeProcess, parameters: dict[str, Any], status: int = 200, **body: Any) -> Any:
    reply = endpoint.client.post("/invocations", json={"inputs": PLAIN, "parameters": parameters, **body})
    assert reply.status_code == status, reply.text
    return reply.json()


def stream(endpoint: ServeProcess, accept: str, parameters: dict[str, Any]) -> list[Any]:
    body = {"inputs": PLAIN, "parameters": {**LONG, **parameters}, "stream": True}
    reply = endpoint.client.post("/invocations", json=body, headers={"Accept": accept})
    assert reply.headers["content-type"].startswith(accept)
    if accept == LINES:
        return [json.loads(line) for line in reply.text.splitlines()]
    return [json.loads(event.removeprefix("data: ")) for event in reply.text.split("\n\n") if event]


def test_a_whole_answer_is_lmis_object(endpoint: ServeProcess) -> None:
    assert ask(endpoint, LONG)["generated_text"].strip() == answer()
    assert ask(endpoint, {**LONG, "return_full_text": True})["generated_text"].startswith(PLAIN)


@pytest.mark.parametrize("accept", [LINES, EVENTS])
def test_a_stream_is_a_token_an_event(endpoint: ServeProcess, accept: str) -> None:
    events = stream(endpoint, accept, {"details": True})
    texts = [event["token"]["text"] for event in events if not event["token"]["special"]]
    assert "".join(texts).strip() == answer()
    assert [event["index"] for event in events] == list(range(1, len(events) + 1))
    assert all(-30 < event["token"]["logprob"] <= 0 for event in events)
    last = events[-1]
    assert last["generated_text"].strip() == answer()
    assert last["details"]["finish_reason"] == "eos_token"
    assert last["details"]["generated_tokens"] == len(events)
    assert last["token"]["special"] is True


def test_the_details_are_those_of_the_stream(endpoint: ServeProcess) -> None:
    details = ask(endpoint, {**LONG, "details": True, "top_n_tokens": 3})["details"]
    events = stream(endpoint, LINES, {"top_n_tokens": 3})
    assert [token["id"] for token in details["tokens"]] == [event["token"]["id"] for event in events]
    for token, event in zip(details["tokens"], events, strict=True):
        assert math.isclose(token["logprob"], event["token"]["logprob"], abs_tol=1e-3)
    for token, top in zip(details["tokens"], details["top_tokens"], strict=True):
        assert len(top) == 3
        assert top[0]["id"] == token["id"], "at temperature 0 the likeliest is the one that was drawn"
        assert sum(math.exp(each["logprob"]) for each in top) <= 1.001
    assert "".join(token["text"] for token in details["tokens"] if not token["special"]).strip() == answer()


def test_the_prompts_log_probabilities(endpoint: ServeProcess) -> None:
    details = ask(endpoint, {"max_new_tokens": 1, "decoder_input_details": True})["details"]
    first, *rest = details["prefill"]
    assert first["logprob"] is None
    assert all(token["logprob"] <= 0 for token in rest)
    assert "".join(token["text"] for token in rest) == PLAIN


def test_a_list_of_inputs_is_answered_in_order(endpoint: ServeProcess) -> None:
    names = ["hello", "ping", "thanks"]
    texts = [f"Question: {by_name(name).questions[0]}\nAnswer:" for name in names]
    replies = ask(endpoint, LONG, inputs=texts)
    assert [reply["generated_text"].strip() for reply in replies] == [by_name(name).answer for name in names]


def test_messages_as_inputs(endpoint: ServeProcess) -> None:
    reply = ask(endpoint, LONG, inputs=[{"role": "user", "content": QUESTION}])
    assert reply["generated_text"] == answer()


def test_best_of_gives_the_best_and_the_others(endpoint: ServeProcess) -> None:
    parameters = {**LONG, "best_of": 3, "do_sample": True, "temperature": 1.5, "details": True}
    best = ask(endpoint, parameters)

    def mean(details: dict[str, Any]) -> float:
        return sum(float(token["logprob"]) for token in details["tokens"]) / len(details["tokens"])

    others = best["details"]["best_of_sequences"]
    assert len(others) == 2
    assert mean(best["details"]) >= max(mean(other) for other in others)


@pytest.mark.parametrize("include", [False, True])
def test_a_stop_string_and_the_reason(endpoint: ServeProcess, include: bool) -> None:
    parameters = {**LONG, "stop": ["healthy"], "include_stop_str_in_output": include, "details": True}
    reply = ask(endpoint, parameters)
    assert reply["generated_text"].strip() == (answer().split("healthy")[0] + "healthy" * include).strip()
    assert reply["details"]["finish_reason"] == "stop_sequence"
    events = stream(endpoint, LINES, parameters)
    assert "".join(event["token"]["text"] for event in events) == reply["generated_text"]


def test_truncate_forgets_the_beginning(endpoint: ServeProcess) -> None:
    long = "word " * 3000 + PLAIN
    assert ask(endpoint, LONG, 400, inputs=long)["error"]["code"] == "context_length_exceeded"
    details = ask(endpoint, {"max_new_tokens": 1, "truncate": 20, "decoder_input_details": True}, inputs=long)[
        "details"
    ]
    assert len(details["prefill"]) == 20
    assert long.endswith("".join(token["text"] for token in details["prefill"][1:]))


def test_a_grammar_is_kept_to(endpoint: ServeProcess) -> None:
    assert ask(endpoint, {"grammar": GRAMMAR})["generated_text"] in ("yes", "no")
    schema = {"type": "object", "properties": {"n": {"type": "integer", "maximum": 99}}, "required": ["n"]}
    reply = ask(endpoint, {**LONG, "grammar": {"type": "json", "value": schema}, "do_sample": True, "seed": 1})
    assert isinstance(json.loads(reply["generated_text"])["n"], int)


@pytest.mark.parametrize("grammar", [{"type": "regex", "value": "(a"}, {"type": "json", "value": {"type": "nonsense"}}])
def test_a_grammar_that_is_none_is_the_callers_error(endpoint: ServeProcess, grammar: dict[str, Any]) -> None:
    assert ask(endpoint, {"grammar": grammar}, 400)["error"]["param"] == "parameters.grammar"
    assert ask(endpoint, LONG)["generated_text"].strip() == answer(), "and the engine goes on"


def test_boto3_reads_json_lines_put_together_from_parts(runtime: Any) -> None:
    body = json.dumps({"inputs": PLAIN, "parameters": LONG, "stream": True})
    reply = runtime.invoke_endpoint_with_response_stream(
        EndpointName="sample", ContentType="application/json", Body=body
    )
    kept = b""
    texts = []
    for part in reply["Body"]:
        *whole, kept = (kept + part["PayloadPart"]["Bytes"]).split(b"\n")
        texts += [json.loads(line)["token"]["text"] for line in whole]
    assert kept == b""
    assert "".join(texts).strip() == answer()
