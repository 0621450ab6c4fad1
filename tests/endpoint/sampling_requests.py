"""Requests that show whether a sampling parameter counts: it changes the tokens, or the reply, or is a 400."""

from __future__ import annotations

from typing import Any

from tests.endpoint.neuron_fleet import ANSWER, QUESTION
from tests.endpoint.serve_process import ServeProcess

PLAIN: dict[str, Any] = {"prompt": [300, 17, 900, 41, 5], "temperature": 0, "max_tokens": 24, "ignore_eos": True}
# So hot that two replies differ, unless a parameter narrows the choice to the likeliest token.
HOT = {**PLAIN, "temperature": 2.0}
NARROWING: dict[str, dict[str, Any]] = {"top_k": {"top_k": 1}, "top_p": {"top_p": 1e-6}, "min_p": {"min_p": 1.0}}
CHANGING: dict[str, dict[str, Any]] = {
    "temperature": {"temperature": 2.0},
    "repetition_penalty": {"repetition_penalty": 0.01},
    "presence_penalty": {"presence_penalty": -2.0},
    "frequency_penalty": {"frequency_penalty": -2.0},
    "logit_bias": {"logit_bias": {"7": 100}},
    "allowed_token_ids": {"allowed_token_ids": [7, 8]},
}


def found(served: ServeProcess) -> dict[str, str]:
    """Parameter -> `counts`, `ignored`, or the status of a rejected request."""
    plain = _text(served, PLAIN)
    assert _text(served, HOT) != plain
    seen = {name: _verdict(_text(served, {**PLAIN, **given}), plain, same=False) for name, given in CHANGING.items()}
    seen |= {name: _verdict(_text(served, {**HOT, **given}), plain, same=True) for name, given in NARROWING.items()}
    seeded = [_text(served, {**HOT, "seed": 1}) for _ in range(2)]
    seen["seed"] = _verdict(seeded[0], seeded[1], same=True)
    seen["bad_words"] = _verdict(_chat(served, bad_words=["/"]), ANSWER, same=False)
    seen["min_tokens"] = _verdict(_chat(served, min_tokens=80), ANSWER, same=False)
    choice = _chat(served, structured_outputs={"choice": ["red", "blue"]})
    seen["grammar"] = choice if isinstance(choice, int) else "counts" if choice in ("red", "blue") else "ignored"
    for name in ("logprobs", "prompt_logprobs"):
        reply = served.client.post("/v1/completions", json={**PLAIN, name: 1})
        has = reply.status_code == 200 and bool(reply.json()["choices"][0].get(name))
        seen[name] = reply.status_code if reply.status_code != 200 else "counts" if has else "ignored"
    return {name: str(verdict) for name, verdict in seen.items()}


def _text(served: ServeProcess, body: dict[str, Any]) -> str | int:
    """The generated text, or the status of a rejected request."""
    reply = served.client.post("/v1/completions", json=body)
    return str(reply.json()["choices"][0]["text"]) if reply.status_code == 200 else reply.status_code


def _chat(served: ServeProcess, **given: Any) -> str | int:
    reply = served.client.post("/invocations", json={**QUESTION, "max_tokens": 120, **given})
    return str(reply.json()["choices"][0]["message"]["content"]) if reply.status_code == 200 else reply.status_code


def _verdict(text: str | int, other: str | int, *, same: bool) -> str | int:
    if isinstance(text, int):
        return text
    return "counts" if (text == other) is same else "ignored"
