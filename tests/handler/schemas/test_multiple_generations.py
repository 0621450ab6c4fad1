"""The generations of one request are bounded together."""

from __future__ import annotations

from typing import Any

from handler.engine.generation.request_cost import COST, RequestCost
from handler.schemas.multiple_generations import MultipleCall
from handler.schemas.tgi_lmi import inputs_body
from handler.schemas.tgi_lmi.request_options import RequestOptions
from tests.handler.schemas.parsing_engine import ParsingEngine


class Begun:
    """A generation's request, which keeps the cost that it begins with."""

    cost: RequestCost | None = None

    def begin(self, *limit: object) -> None:
        self.cost = COST.get()


def costs(**parameters: Any) -> list[RequestCost | None]:
    """The cost of each generation of a body with three texts."""
    engine: Any = ParsingEngine()
    begun = [Begun(), Begun(), Begun()]
    made = iter(begun)
    engine.request = lambda generation, sink: next(made)
    body = {"inputs": ["a", "b", "c"], "parameters": parameters}
    call = inputs_body.parse(body, engine, RequestOptions(inputs_schema="tgi"))
    assert isinstance(call, MultipleCall)
    sink: Any = None
    call.request(engine, sink).begin()
    assert COST.get() is None, "the next line of a batch has a cost of its own"
    return [each.cost for each in begun]


def test_the_generations_of_a_request_share_one_cost() -> None:
    for parameters, open_ended in (({}, True), ({"max_new_tokens": 5}, False)):
        first, *others = costs(**parameters)
        assert first is not None
        assert all(each is first for each in others)
        assert (first.open_ended, first.prompts) == (open_ended, 3)
