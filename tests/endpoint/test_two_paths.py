"""The short path and vLLM's own serving classes give the same answer to the same plain request, field for field.

Each generated request goes both ways: `cache_salt`, which changes nothing in an answer, is what sends the second the
full way. A seed fixes what is sampled.
"""

from __future__ import annotations

import json
import random
from typing import Any

import pytest

from sample_model.facts import load
from tests.endpoint.serve_process import ServeProcess
from tests.installed_vllm import is_016

pytestmark = pytest.mark.engine

REQUESTS = 320
BATCHES = 8
QUESTIONS = [question for fact in load() for question in fact.questions]
# Made anew for each reply.
OWN = ("id", "created")


def request(number: int) -> tuple[str, dict[str, Any]]:
    """One of the plain requests; always the same one for a number."""
    pick = random.Random(number)
    chat = pick.random() < 0.6
    body: dict[str, Any] = {"temperature": pick.choice([0, 0, 0.3, 0.8, 1.5])}
    if chat:
        body["messages"] = _messages(pick)
        body[pick.choice(["max_tokens", "max_completion_tokens"])] = pick.randint(1, 12)
        if body["messages"][-1]["role"] == "assistant":
            body |= {"add_generation_prompt": False, "continue_final_message": True}
    else:
        body["prompt"] = _prompt(pick)
        if pick.random() < 0.9:
            body["max_tokens"] = pick.randint(1, 12)
    if body["temperature"] or pick.random() < 0.3:
        body["seed"] = pick.randint(0, 2**31)
    optional: dict[str, list[Any]] = {
        "model": ["sample", "", None],
        "top_p": [0.5, 1.0, 0.95],
        "top_k": [-1, 0, 1, 20],
        "min_p": [0.0, 0.2],
        "repetition_penalty": [1.0, 1.3],
        "frequency_penalty": [0.0, 0.7, None],
        "presence_penalty": [-0.5, 1.2],
        "min_tokens": [0, 1],
        "stop": [None, [], "the", ["e", "zzz"], "."],
        "stop_token_ids": [None, [], [4], [300, 301, 302]],
        "ignore_eos": [True, False],
        "include_stop_str_in_output": [True, False],
        "skip_special_tokens": [True, False],
        "spaces_between_special_tokens": [True, False],
        "add_special_tokens": [True, False],
        "n": [1],
        "user": ["someone"],
        "logprobs": [None] if not chat else [None, False],
    }
    for name in pick.sample(sorted(optional), pick.randint(0, 6)):
        body[name] = pick.choice(optional[name])
    if pick.random() < 0.5:
        body["stream"] = True
        if pick.random() < 0.6:
            include, each = pick.random() < 0.7, pick.random() < 0.5
            body["stream_options"] = {"include_usage": include, "continuous_usage_stats": each}
    return ("/v1/chat/completions" if chat else "/v1/completions"), body


def _messages(pick: random.Random) -> list[dict[str, Any]]:
    messages: list[dict[str, Any]] = []
    if pick.random() < 0.2:
        messages.append({"role": "system", "content": "Answer briefly."})
    for _ in range(pick.choice([0, 0, 0, 1, 2])):
        messages.append({"role": "user", "content": pick.choice(QUESTIONS)})
        messages.append({"role": "assistant", "content": pick.choice(["Yes.", "200", None, ""])})
    question = pick.choice([*QUESTIONS, "ä漢字 \U0001f600", " "])
    parts = [{"type": "text", "text": question}, {"type": "text", "text": "Please."}]
    messages.append({"role": "user", "content": pick.choice([question, question, parts, parts[:1]])})
    if pick.random() < 0.1:
        messages[-1]["name"] = "someone"
    if pick.random() < 0.1:
        messages.append({"role": "assistant", "content": "/ping tells"})
    return messages


def _prompt(pick: random.Random) -> Any:
    text = f"Question: {pick.choice(QUESTIONS)}\nAnswer:"
    ids = [pick.randint(5, 1200) for _ in range(pick.randint(1, 20))]
    return pick.choice([text, text, "a", [text], ids, [ids]])


def answer(endpoint: ServeProcess, path: str, body: dict[str, Any]) -> Any:
    reply = endpoint.client.post(path, json=body)
    if reply.status_code != 200:
        return reply.status_code
    if not body.get("stream"):
        return {name: value for name, value in parsed(reply.text).items() if name not in OWN}
    assert reply.headers["content-type"] == "text/event-stream; charset=utf-8"
    *events, end = [event.removeprefix("data: ") for event in reply.text.split("\n\n")[:-1]]
    assert end == "[DONE]"
    return merged([parsed(event) for event in events])


def parsed(text: str) -> dict[str, Any]:
    """A document. The container's own replies have the fields of 0.16; later versions omit empty ones, and sign."""

    def kept(fields: dict[str, Any]) -> dict[str, Any]:
        if is_016():
            return fields
        empty = {name for name, value in fields.items() if value is None or (name, value) == ("tool_calls", [])}
        return {name: value for name, value in fields.items() if name not in {*empty, "system_fingerprint"}}

    document: dict[str, Any] = json.loads(text, object_hook=kept)
    return document


def merged(chunks: list[dict[str, Any]]) -> dict[str, Any]:
    """A stream without the accident of how many tokens came at once: its text, and its chunks by what they are for.

    The short path sends no chunk that adds nothing; vLLM sends one while a stop string may be beginning.
    """
    text, usages = "", []
    by_kind: dict[str, list[dict[str, Any]]] = {"opening": [], "middle": [], "last": [], "usage": []}
    for chunk in chunks:
        shape = {name: value for name, value in chunk.items() if name not in OWN}
        usages.append(shape.pop("usage", "none"))
        kind = "usage"
        for choice in shape["choices"]:
            holder = choice.get("delta", choice)
            name = "content" if "delta" in choice else "text"
            text += holder.get(name, "")
            holder[name] = "text"
            kind = "last" if choice.get("finish_reason") else "opening" if "role" in holder else "middle"
        if shape not in by_kind[kind]:
            by_kind[kind].append(shape)
    kinds = {usage if isinstance(usage, str | None) else tuple(usage) for usage in usages}
    return {"text": text, **by_kind, "first usage": uncounted(usages[0]), "last usage": usages[-1], "kinds": kinds}


def uncounted(usage: Any) -> Any:
    """Without how many tokens there were by then, which is the accident."""
    if not isinstance(usage, dict):
        return usage
    made = usage["completion_tokens"]
    assert usage["total_tokens"] == usage["prompt_tokens"] + made
    return {**usage, "completion_tokens": min(made, 1), "total_tokens": 0}


def alike(short: Any, full: Any) -> bool:
    """Equal; but tokens that all came at once, with the end, have no chunk of their own."""
    if isinstance(short, dict) and isinstance(full, dict) and not (short.get("middle") and full.get("middle")):
        short, full = {**short, "middle": [], "first usage": 0}, {**full, "middle": [], "first usage": 0}
    return bool(short == full)


@pytest.mark.parametrize("batch", range(BATCHES))
def test_both_paths_answer_alike(endpoint: ServeProcess, batch: int) -> None:
    for number in range(batch, REQUESTS, BATCHES):
        path, body = request(number)
        short = answer(endpoint, path, body)
        full = answer(endpoint, path, {**body, "cache_salt": "compared"})
        assert alike(short, full), f"{json.dumps(body)}\n{short}\n{full}"
        assert not isinstance(short, int), json.dumps(body)
