"""A double of NxD's `ModelBuilder`: what it compiles is a TorchScript module that computes a Llama on the CPU.

Interfaces: AWS Neuron documentation, "NxD Core Inference APIs" (ModelBuilder: add, trace, shard_checkpoint), and what
optimum-neuron 0.4.5 calls (models/inference/backend/pretrained_model.py, decoder_wrappers.py).
"""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
import torch.nn.functional as F
from safetensors.torch import save_file
from torch import Tensor, nn


class BaseModelInstance:
    """What a graph is compiled from. optimum-neuron's own class has the configuration."""


class Graphs(nn.Module):
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

    @torch.jit.export
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
        mask = torch.ones([length, length], dtype=torch.bool).tril()
        if not whole:
            mask = (torch.arange(self.keys[0].shape[2]) <= places).view([rows, 1, 1, -1])
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
                key, value = self.keys[layer][slots], self.values[layer][slots]
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


class TracedModel(nn.Module):
    """The compiled model as NxD saves it: its runtime is `nxd_model`."""

    def __init__(self, graphs: Graphs) -> None:
        super().__init__()
        self.nxd_model = graphs

    def forward(self, input_ids: Tensor, position_ids: Tensor, seq_ids: Tensor, sampling_params: Tensor) -> Tensor:
        return self.nxd_model(input_ids, position_ids, seq_ids, sampling_params)  # type: ignore[no-any-return]


class ModelBuilder:
    """Compiles graphs, and shards a checkpoint: here each rank has all of it.

    :param checkpoint_loader: returns the weights by the names of optimum-neuron's model.
    """

    def __init__(
        self,
        router: None,
        tp_degree: int,
        checkpoint_loader: Callable[[], dict[str, Tensor]] | None = None,
        **others: object,
    ) -> None:
        self._ranks, self._load = tp_degree, checkpoint_loader
        self._graphs: dict[str, tuple[Any, torch.Size]] = {}

    def add(self, key: str, model_instance: Any, example_inputs: list[tuple[Tensor, ...]], **others: object) -> None:
        self._graphs[key] = model_instance, example_inputs[0][0].shape

    def trace(self, initialize_model_weights: bool = True) -> torch.jit.ScriptModule:
        print("the double of the compiler compiles", flush=True)
        instance, token = self._graphs["token_generation"]
        _, prompt = self._graphs["context_encoding"]
        graphs = Graphs(instance.config, instance.neuron_config, prompt, token)
        return torch.jit.script(TracedModel(graphs))  # type: ignore[no-any-return]

    def shard_checkpoint(self, serialize_path: str | None = None) -> list[dict[str, Tensor]]:
        assert self._load is not None
        weights = {name: tensor.contiguous() for name, tensor in self._load().items()}
        if serialize_path is not None:
            directory = Path(serialize_path)
            directory.mkdir(parents=True, exist_ok=True)
            for rank in range(self._ranks):
                save_file(weights, directory / f"tp{rank}_sharded_checkpoint.safetensors")
        return [weights] * self._ranks
