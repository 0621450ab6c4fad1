"""One grammar backend serves every request: what it cannot read is a 400 that names the field."""

from __future__ import annotations

import pytest

from tests.endpoint.serve_process import ServeProcess

pytestmark = pytest.mark.engine
# The second of each pair is one that vLLM's `auto` would give to another backend than the first.
PAIRS: dict[str, tuple[dict[str, object], dict[str, object]]] = {
    "regular expressions": ({"regex": "[a-z]+"}, {"regex": "(?i)abc"}),
    "a schema, then an EBNF": (
        {"json": {"type": "object", "patternProperties": {"^a": {"type": "integer"}}}},
        {"grammar": 'root ::= "yes" | "no"'},
    ),
}


@pytest.mark.parametrize("pair", PAIRS)
@pytest.mark.parametrize("path", ["/v1/completions", "/invocations"])
def test_no_grammar_ends_the_engine(endpoint: ServeProcess, pair: str, path: str) -> None:
    before = endpoint.engine_pids()
    for grammar in PAIRS[pair]:
        body = {"model": "sample", "prompt": "a", "max_tokens": 4, "structured_outputs": grammar}
        reply = endpoint.client.post(path, json=body)
        assert reply.status_code in (200, 400), reply.text
        if reply.status_code == 400:
            assert reply.json()["error"]["param"] == "structured_outputs"
    assert endpoint.ping() == (200, "")
    assert endpoint.engine_pids() == before


def test_the_same_of_inputs(endpoint: ServeProcess) -> None:
    before = endpoint.engine_pids()
    for value in ("[a-z]+", "(?i)abc"):
        body = {"inputs": "a", "parameters": {"max_new_tokens": 4, "grammar": {"type": "regex", "value": value}}}
        reply = endpoint.client.post("/invocations", json=body)
        assert reply.status_code in (200, 400), reply.text
        if reply.status_code == 400:
            assert reply.json()["error"]["param"] == "parameters.grammar"
    assert endpoint.ping() == (200, "")
    assert endpoint.engine_pids() == before
