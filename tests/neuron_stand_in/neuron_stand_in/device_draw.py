"""Drawing tokens as the device does (semantics: NxDI, modules/generation/sampling.py)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch

MOST_TOP_K = 256


def limit(config: Mapping[str, Any]) -> int:
    """The largest top_k, and what top_k is where a request asks for more, or for none."""
    return int(min(config["global_topk"], MOST_TOP_K))


def draw(
    logits: torch.Tensor,
    top_k: torch.Tensor,
    top_p: torch.Tensor,
    temperature: torch.Tensor,
    config: Mapping[str, Any],
) -> torch.Tensor:
    """One token a row. `top_k` 0 is none; temperature 0 is greedy.

    Without `dynamic` temperature and top_p are constants of the graph; without `do_sample` as well, all is greedy.
    """
    if not (config["dynamic"] or config["do_sample"]):
        return logits.argmax(dim=-1)
    most = limit(config)
    greedy = temperature == 0
    top_k = torch.where((top_k > 0) & (top_k < most), top_k, most)
    top_k = torch.where(greedy, 1, top_k).unsqueeze(-1)
    temperature = torch.where(greedy, 1.0, temperature).unsqueeze(-1)
    values, tokens = torch.topk(logits.float(), min(most, logits.shape[-1]), dim=-1)
    values = values.masked_fill(torch.arange(values.shape[-1]) >= top_k, float("-inf"))
    if config["dynamic"]:
        values = values / temperature
    probabilities = values.softmax(dim=-1)
    if config["dynamic"]:
        past = probabilities.cumsum(dim=-1) > top_p.unsqueeze(-1)
        past[:, 0] = False  # at least one token
        probabilities = probabilities.masked_fill(past, 0)
    cumulated = probabilities.cumsum(dim=-1)
    rows = (len(values), 1)
    point = torch.full(rows, 0.5) if config["deterministic"] else torch.rand(rows)
    index = (point * cumulated[:, -1:] > cumulated).sum(dim=-1, keepdim=True)
    return tokens.gather(-1, index.clamp(max=values.shape[-1] - 1)).squeeze(-1)
