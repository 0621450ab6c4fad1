"""Checks what the engine is about to get of a request, on every path."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from vllm.sampling_params import RequestOutputKind

from handler.engine.engine_client.client_error import client_error
from handler.engine.generation.request_cost import COST, CostLimits, EngineInput, RequestCost, check_ids, check_values
from handler.errors import InvalidField


@dataclass(frozen=True, slots=True)
class InputGate:
    """What the engine's message says is checked, and not what a body said.

    :param vocab_size: one more than the largest token id.
    :param largest_id: the largest token id of a prompt. The placeholders of images are tokens of the tokenizer alone.
    :param prompt: the longest prompt in tokens. None: the context.
    """

    cost: CostLimits
    vocab_size: int
    largest_id: int
    prompt: int | None = None

    @classmethod
    def of(cls, cost: CostLimits, model_config: Any, tokenizer: Any, prompt: int | None) -> InputGate:
        """:param model_config: vLLM's."""
        vocab_size = int(model_config.get_vocab_size())
        largest_id = vocab_size - 1
        if model_config.is_multimodal_model and tokenizer is not None:
            largest_id = max(largest_id, int(tokenizer.max_token_id))
        return cls(cost, vocab_size, largest_id, prompt)

    def check(self, ids: Sequence[int], salt: str, sampling: Any) -> bool:
        """Checks one prompt with its parameters, and adds it to the cost of its request.

        :param sampling: vLLM's sampling parameters. None: the model pools.
        :returns: whether the reply is one document of a request that does not search.
        :raises Exception: `client_error`: a value or a product of values is too large, or the prompt is too long.
        """
        if self.prompt is not None and len(ids) > self.prompt:
            message = f"The prompt has {len(ids)} tokens, over the context length of {self.prompt} that was compiled."
            raise client_error(message)
        try:
            if sampling is None:
                check_ids("prompt", ids, self.largest_id)
                return False
            whole = sampling.output_kind is RequestOutputKind.FINAL_ONLY
            given = EngineInput(ids, salt, sampling, whole, self.vocab_size)
            cost = COST.get() or RequestCost()
            check_values(given, self.largest_id)
            self.cost.charge(given, cost)
            return whole and not cost.searching
        except InvalidField as error:
            raise client_error(f"{error.field}: {error.problem}", error.field) from None
