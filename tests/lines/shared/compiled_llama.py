"""What the doubles of the compiler make of a Llama: graphs of fixed shapes, a KV cache of every slot, and sampling."""

import json
import os
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

COMPILES = "the double of the compiler compiles"
# Names a file that gets a line for each call of a runner: its slots, and the last position of each.
CALLS = "DOUBLE_CALLS"


class Graphs(nn.Module):  # type: ignore[misc]  # torch is not followed
    """Prompts of one shape, single tokens of another, and the KV cache of every slot."""

    weights: dict[str, Tensor]
    keys: list[Tensor]
    values: list[Tensor]

    def __init__(self, config: Any, neuron: Any, prompt: torch.Size, token: torch.Size) -> None:
        super().__init__()
        self.prompt: list[int] = list(prompt)
        self.token: list[int] = list(token)
        self.layers: int = config.num_hidden_layers
        self.heads: int = config.num_attention_heads
        self.kv_heads: int = config.num_key_value_heads
        self.head: int = config.head_dim
        self.eps: float = config.rms_norm_eps
        self.theta: float = config.rope_theta
        self.samples: bool = neuron.on_device_sampling
        self.top: int = neuron.max_topk
        self.ignored = -3000.0
        self.weights = {}
        shape = (neuron.max_batch_size, self.kv_heads, neuron.sequence_length, self.head)
        self.keys = [torch.zeros(shape, dtype=neuron.torch_dtype) for _ in range(self.layers)]
        self.values = [torch.zeros(shape, dtype=neuron.torch_dtype) for _ in range(self.layers)]

    @torch.jit.export  # type: ignore[untyped-decorator]  # torch is not followed here
    def initialize(self, weights: list[dict[str, Tensor]], start_rank: Tensor) -> None:
        self.weights = weights[0]

    def norm(self, hidden: Tensor, name: str) -> Tensor:
        wide = hidden.float()
        wide = wide * torch.rsqrt(wide.pow(2).mean(-1, keepdim=True) + self.eps)
        return self.weights[name] * wide.to(hidden.dtype)

    def rotated(self, states: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
        first, second = states.chunk(2, dim=-1)
        return states * cos + torch.cat([-second, first], dim=-1) * sin

    def sampled(self, logits: Tensor, parameters: Tensor) -> Tensor:
        """Tokens by top_k, top_p and temperature, in this order of columns."""
        scores, tokens = torch.topk(logits, self.top, dim=-1)
        scores = scores.masked_fill(torch.arange(self.top) >= parameters[:, 0:1], self.ignored) / parameters[:, 2:3]
        chances = torch.softmax(scores, dim=-1)
        before = chances.cumsum(-1) - chances
        chances = torch.softmax(scores.masked_fill(before > parameters[:, 1:2], self.ignored), dim=-1)
        drawn = (torch.rand([logits.shape[0], 1]) > chances.cumsum(-1)).sum(-1, keepdim=True)
        return tokens.gather(-1, drawn.clamp(max=self.top - 1)).flatten()

    def forward(self, input_ids: Tensor, position_ids: Tensor, seq_ids: Tensor, sampling_params: Tensor) -> Tensor:
        rows, length = input_ids.shape
        whole = length > 1
        assert list(input_ids.shape) == (self.prompt if whole else self.token), "not the compiled shape"
        slots, places = seq_ids[:rows].long(), position_ids.long()
        step = torch.arange(0, self.head, 2).float() / self.head
        angles = places.float().unsqueeze(-1) / torch.pow(torch.tensor(self.theta), step)
        angles = torch.cat([angles, angles], dim=-1).unsqueeze(1)
        hidden = F.embedding(input_ids.long(), self.weights["embed_tokens.weight"])
        cos, sin = angles.cos().to(hidden.dtype), angles.sin().to(hidden.dtype)
        # A prompt's own tokens up to each, or what the slot has up to this token.
        mask, used = torch.ones([length, length], dtype=torch.bool).tril(), int(places.max()) + 1
        if not whole:
            mask = (torch.arange(used) <= places).view([rows, 1, 1, -1])
        for layer in range(self.layers):
            name = "layers." + str(layer)
            states = self.norm(hidden, name + ".input_layernorm.weight")
            fused = F.linear(states, self.weights[name + ".self_attn.Wqkv.weight"])
            fused = fused.view([rows, length, -1, self.head]).transpose(1, 2)
            query, key, value = fused.split([self.heads, self.kv_heads, self.kv_heads], dim=1)
            query, key = self.rotated(query, cos, sin), self.rotated(key, cos, sin)
            if whole:
                self.keys[layer][slots, :, :length] = key
                self.values[layer][slots, :, :length] = value
            else:
                self.keys[layer][slots, :, places[:, 0]] = key[:, :, 0]
                self.values[layer][slots, :, places[:, 0]] = value[:, :, 0]
                key, value = self.keys[layer][:, :, :used][slots], self.values[layer][:, :, :used][slots]
            shared = self.heads // self.kv_heads
            key, value = key.repeat_interleave(shared, dim=1), value.repeat_interleave(shared, dim=1)
            states = F.scaled_dot_product_attention(query, key, value, attn_mask=mask)
            states = states.transpose(1, 2).reshape([rows, length, -1])
            hidden = hidden + F.linear(states, self.weights[name + ".self_attn.o_proj.weight"])
            states = self.norm(hidden, name + ".post_attention_layernorm.weight")
            gate = F.silu(F.linear(states, self.weights[name + ".mlp.gate_proj.weight"]))
            states = gate * F.linear(states, self.weights[name + ".mlp.up_proj.weight"])
            hidden = hidden + F.linear(states, self.weights[name + ".mlp.down_proj.weight"])
        last = places.argmax(dim=1)
        hidden = self.norm(hidden[torch.arange(rows), last], "norm.weight")
        logits = F.linear(hidden, self.weights["lm_head.weight"]).float()
        return self.sampled(logits, sampling_params) if self.samples else logits.unsqueeze(1)


class Slots:
    """Calls graphs with what a runner gives, as the frameworks do: prompts one by one, then all slots at once.

    :param graphs: compiled for one prompt, and for `batch` tokens. They have one slot more, which takes the padding.
    :param buckets: the lengths of prompts. Several need graphs that are not scripted.
    """

    def __init__(self, graphs: Any, buckets: Sequence[int], batch: int) -> None:
        self._graphs, self._buckets, self._batch = graphs, sorted(buckets), batch

    def __call__(
        self, ids: Tensor, positions: Tensor, slots: Tensor, sampling: Callable[[int], Sequence[float]]
    ) -> Any:
        """:param sampling: row -> top_k, top_p, temperature.

        :returns: a token for each row, or the logits of each.
        """
        rows, given = list(range(len(slots))), slots.flatten().tolist()
        parameters = torch.tensor([list(sampling(row)) for row in rows], dtype=torch.float32)
        prompt = ids.shape[1] > 1 or not bool(positions.any())
        last = positions.argmax(dim=1)
        self._record(prompt, given, positions.gather(1, last[:, None]).flatten().tolist())
        if prompt:
            answers = [
                self._prompt(ids[[row]], positions[[row]], int(last[row]), slots[[row]], parameters[[row]])
                for row in rows
            ]
            return torch.cat(answers)
        free = self._batch - len(rows)
        assert free >= 0, "more sequences than were compiled"
        padding = torch.full((free, 1), 0)
        unused = torch.full((free,), self._batch)
        parameters = torch.cat([parameters, torch.tensor([[1.0, 1.0, 1.0]] * free).view(free, 3)])
        args = (
            torch.cat([ids, padding]),
            torch.cat([positions, padding]),
            torch.cat([slots.flatten(), unused]),
            parameters,
        )
        return self._graphs(*args)[: len(rows)]

    def _prompt(self, ids: Tensor, positions: Tensor, last: int, slot: Tensor, parameters: Tensor) -> Tensor:
        length = last + 1
        bucket = next((bucket for bucket in self._buckets if bucket >= length), None)
        assert bucket is not None, f"no bucket for a prompt of {length} tokens"
        if len(self._buckets) > 1:
            self._graphs.prompt = [1, bucket]
        pad = bucket - length
        answer: Tensor = self._graphs(
            F.pad(ids[:, :length], (0, pad)), F.pad(positions[:, :length], (0, pad)), slot, parameters
        )
        return answer

    def _record(self, prompt: bool, slots: list[int], positions: list[int]) -> None:
        if path := os.environ.get(CALLS):
            with Path(path).open("a", encoding="utf-8") as calls:
                calls.write(json.dumps({"prompt": prompt, "slots": slots, "positions": positions}) + "\n")


def speculated(
    draft: Callable[[Tensor, Tensor], Tensor],
    target: Callable[[Tensor, Tensor], Tensor],
    ids: Tensor,
    at: Tensor,
    k: int,
) -> tuple[Tensor, Tensor]:
    """The target's next k + 1 tokens of each row, and how many of them hold: up to the first that the draft has not.

    :param draft, target: the last token of each row and its position -> the next token.
    """
    proposed, answers = [ids], []
    for step in range(k + 1):
        proposed.append(draft(proposed[-1], at + step).view(-1, 1))
    for step in range(k + 1):
        answers.append(target(proposed[step], at + step).view(-1, 1))
    tokens = torch.cat(answers, dim=1)
    same = tokens[:, :k] == torch.cat(proposed[1 : k + 1], dim=1)
    return tokens, same.cumprod(dim=1).sum(dim=1, keepdim=True) + 1


def weights_of(directory: str, dtype: torch.dtype) -> dict[str, Tensor]:
    """A checkpoint's weights by the names of `Graphs`, with query, key and value in one."""
    from safetensors.torch import load_file

    loaded: dict[str, Tensor] = {}
    for file in sorted(Path(directory).glob("*.safetensors")):
        loaded.update(load_file(file))
    if not loaded:
        raise FileNotFoundError(f"no weights in {directory}")
    found = {name.removeprefix("model."): tensor.to(dtype) for name, tensor in loaded.items()}
    found.setdefault("lm_head.weight", found["embed_tokens.weight"])
    for name in [name for name in found if name.endswith("q_proj.weight")]:
        parts = [found.pop(name.replace("q_proj", f"{part}_proj")) for part in "qkv"]
        found[name.replace("q_proj", "Wqkv")] = torch.cat(parts)
    return found
