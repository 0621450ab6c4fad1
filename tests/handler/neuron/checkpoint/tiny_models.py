"""Four tiny models with random weights, as transformers saves them, and seeded faults of their directories."""

from __future__ import annotations

import json
import random
import shutil
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import load_file, save_file
from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers, trainers

TEXT = ["the cat sat on the mat and the dog ran to the house", "a long time ago in a far land there was a king"] * 4
TEMPLATE = (
    "{% if messages %}{% for message in messages %}{{ '<|' + message['role'] + '|>' + message['content'] + '<|end|>' }}"
    "{% endfor %}{% if add_generation_prompt %}{{ '<|assistant|>' }}{% endif %}{% endif %}"
)
SPECIAL = ("<|begin|>", "<|end|>", "<|system|>", "<|user|>", "<|assistant|>")


@dataclass(frozen=True, slots=True)
class Shape:
    """One architecture, with what sets it apart from the others.

    :param files: into how many files its weights are split; more than one has an index.
    """

    architecture: str
    vocabulary: int
    hidden: int
    files: int = 1
    tied: bool = False
    bias: bool = False
    norms: bool = False
    theta: float = 10_000.0
    rope: Mapping[str, Any] | None = None


LLAMA3 = {
    "rope_type": "llama3",
    "factor": 8.0,
    "low_freq_factor": 1.0,
    "high_freq_factor": 4.0,
    "original_max_position_embeddings": 32,
}
SHAPES: Mapping[str, Shape] = {
    "llama": Shape("LlamaForCausalLM", 320, 96, theta=500_000.0, rope=LLAMA3),
    "qwen2": Shape("Qwen2ForCausalLM", 352, 128, files=3, bias=True, theta=1_000_000.0),
    "qwen3": Shape("Qwen3ForCausalLM", 384, 64, tied=True, norms=True, theta=5_000_000.0),
    "mistral": Shape("MistralForCausalLM", 416, 160, files=2, theta=1_000.0),
    "other": Shape("LlamaForCausalLM", 900, 192, theta=1_000_000.0),
}
LAYERS, HEADS, KV_HEADS, HEAD, INNER = 2, 4, 2, 32, 224


def config_of(name: str) -> dict[str, Any]:
    shape = SHAPES[name]
    model_type = "llama" if name == "other" else name
    found: dict[str, Any] = {
        "architectures": [shape.architecture],
        "attention_dropout": 0.0,
        "bos_token_id": 0,
        "eos_token_id": 1,
        "dtype": "float32",
        "head_dim": HEAD,
        "hidden_act": "silu",
        "hidden_size": shape.hidden,
        "initializer_range": 0.02,
        "intermediate_size": INNER,
        "max_position_embeddings": 256,
        "model_type": model_type,
        "num_attention_heads": HEADS,
        "num_hidden_layers": LAYERS,
        "num_key_value_heads": KV_HEADS,
        "rms_norm_eps": 1e-5,
        "rope_scaling": shape.rope,
        "rope_theta": shape.theta,
        "tie_word_embeddings": shape.tied,
        "transformers_version": "4.57.6",
        "use_cache": True,
        "vocab_size": shape.vocabulary,
    }
    if model_type == "llama":
        found |= {"attention_bias": False, "mlp_bias": False}
    return found


def tensors_of(name: str, seed: int = 1) -> dict[str, torch.Tensor]:
    shape = SHAPES[name]
    generator = torch.Generator().manual_seed(seed * 1000 + shape.vocabulary)
    hidden, rows, keys = shape.hidden, HEADS * HEAD, KV_HEADS * HEAD

    def drawn(*size: int, scale: float = 1.0) -> torch.Tensor:
        return torch.randn(*size, generator=generator) * scale

    # Embeddings that are tied answer with the token before, unless they are small beside the layers' part.
    embeddings = drawn(shape.vocabulary, hidden, scale=0.1 if shape.tied else 1.0)
    found = {"model.embed_tokens.weight": embeddings, "model.norm.weight": 1 + drawn(hidden) / 4}
    if not shape.tied:
        found["lm_head.weight"] = drawn(shape.vocabulary, hidden)
    for layer in range(LAYERS):
        place = f"model.layers.{layer}"
        sizes = {"q_proj": (rows, hidden), "k_proj": (keys, hidden), "v_proj": (keys, hidden), "o_proj": (hidden, rows)}
        for part, size in sizes.items():
            found[f"{place}.self_attn.{part}.weight"] = drawn(*size, scale=3 * size[1] ** -0.5)
            if shape.bias and part != "o_proj":
                found[f"{place}.self_attn.{part}.bias"] = drawn(size[0])
        for part, size in {
            "gate_proj": (INNER, hidden),
            "up_proj": (INNER, hidden),
            "down_proj": (hidden, INNER),
        }.items():
            found[f"{place}.mlp.{part}.weight"] = drawn(*size, scale=size[1] ** -0.5)
        for part in ("input_layernorm", "post_attention_layernorm"):
            found[f"{place}.{part}.weight"] = 1 + drawn(hidden) / 4
        if shape.norms:
            for part in ("q_norm", "k_norm"):
                found[f"{place}.self_attn.{part}.weight"] = 1 + drawn(HEAD) / 4
    return {key: found[key].contiguous() for key in sorted(found)}


def write_tensors(directory: Path, tensors: Mapping[str, torch.Tensor], files: int) -> None:
    """Writes the weights as transformers does: one file, or several with an index."""
    if files == 1:
        save_file(dict(tensors), directory / "model.safetensors", metadata={"format": "pt"})
        return
    names, weight_map = list(tensors), dict[str, str]()
    for part in range(files):
        own = names[part * len(names) // files : (part + 1) * len(names) // files]
        file = f"model-{part + 1:05}-of-{files:05}.safetensors"
        weight_map |= dict.fromkeys(own, file)
        save_file({key: tensors[key] for key in own}, directory / file, metadata={"format": "pt"})
    total = sum(tensor.numel() * 4 for tensor in tensors.values())
    index = {"metadata": {"total_size": total}, "weight_map": weight_map}
    (directory / "model.safetensors.index.json").write_text(json.dumps(index, indent=2))


def write_tokenizer(directory: Path, vocabulary: int) -> None:
    """A byte-level BPE with exactly `vocabulary` tokens. That of the other model has other merges."""
    text = TEXT if vocabulary < 500 else [sentence[::-1] for sentence in TEXT]
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    special = [AddedToken(token, special=True, normalized=False) for token in SPECIAL]
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    trainer = trainers.BpeTrainer(
        vocab_size=300, special_tokens=special, initial_alphabet=alphabet, show_progress=False
    )
    tokenizer.train_from_iterator(text, trainer)
    tokenizer.add_tokens([f"<extra_{number}>" for number in range(vocabulary - tokenizer.get_vocab_size())])
    tokenizer.save(str(directory / "tokenizer.json"))
    config = {
        "bos_token": SPECIAL[0],
        "clean_up_tokenization_spaces": False,
        "eos_token": SPECIAL[1],
        "extra_special_tokens": {},
        "model_max_length": 256,
        "pad_token": SPECIAL[1],
        "tokenizer_class": "PreTrainedTokenizerFast",
    }
    (directory / "tokenizer_config.json").write_text(json.dumps(config, indent=2))
    named = {key: config[key] for key in ("bos_token", "eos_token", "pad_token")}
    (directory / "special_tokens_map.json").write_text(json.dumps(named, indent=2))
    (directory / "chat_template.jinja").write_text(TEMPLATE)


def write_model(directory: Path, name: str) -> Path:
    """Writes one of the models."""
    directory.mkdir(parents=True)
    (directory / "config.json").write_text(json.dumps(config_of(name), indent=2))
    generation = {"bos_token_id": 0, "eos_token_id": 1, "transformers_version": "4.57.6"}
    (directory / "generation_config.json").write_text(json.dumps(generation, indent=2))
    write_tensors(directory, tensors_of(name), SHAPES[name].files)
    write_tokenizer(directory, SHAPES[name].vocabulary)
    return directory


Fault = Callable[[Path, Path, random.Random], str]


def cut(model: Path, other: Path, draw: random.Random) -> str:
    file = drawn_file(model, draw)
    size = draw.choice((0, draw.randrange(file.stat().st_size), file.stat().st_size - 1))
    file.write_bytes(file.read_bytes()[:size])
    return f"{file.name} cut to {size}"


def missing(model: Path, other: Path, draw: random.Random) -> str:
    file = drawn_file(model, draw)
    file.unlink()
    return f"{file.name} missing"


def renamed(model: Path, other: Path, draw: random.Random) -> str:
    file = drawn_file(model, draw)
    name = draw.choice((f"{file.name}.bak", f"old-{file.name}", file.name.upper()))
    file.rename(model / name)
    return f"{file.name} renamed to {name}"


def mixed(model: Path, other: Path, draw: random.Random) -> str:
    file = drawn_file(model, draw)
    source = other / file.name
    shutil.copyfile(source if source.is_file() else other / "model.safetensors", file)
    return f"{file.name} of the other model"


def respelled(model: Path, other: Path, draw: random.Random) -> str:
    name, change = draw.choice(SPELLINGS)
    file = model / name
    document = json.loads(file.read_text())
    label = change(document)
    file.write_text(json.dumps(document, indent=2))
    return f"{name}: {label}"


def tensor(model: Path, other: Path, draw: random.Random) -> str:
    file = draw.choice(sorted(model.glob("*.safetensors")))
    tensors = load_file(file)
    name = draw.choice(sorted(tensors))
    kind = draw.choice(("dropped", "renamed", "transposed", "a row more", "flat", "added"))
    value = tensors.pop(name)
    if kind == "renamed":
        tensors[
            draw.choice(
                (
                    f"x.{name}",
                    name.replace("layers.1", "layers.7"),
                    f"{name}_old",
                    name.replace("model.", "model.language_model."),
                )
            )
        ] = value
    elif kind == "transposed" and value.dim() == 2 and value.shape[0] != value.shape[1]:
        tensors[name] = value.T.contiguous()
    elif kind in ("a row more", "transposed"):  # a square one has the same shape, and nothing tells it
        kind = "a row more"
        tensors[name] = torch.cat([value, value[:1]])
    elif kind == "flat":
        tensors[name] = value.reshape(-1)
    elif kind == "added":
        tensors |= {
            name: value,
            draw.choice(
                (
                    f"{name}.extra",
                    "model.layers.0.self_attn.rotary_emb.inv_freq",
                    "model.layers.9.mlp.up_proj.weight",
                    "model.layers.0.mlp.up_proj.bias",
                )
            ): value.clone(),
        }
    save_file(tensors, file, metadata={"format": "pt"})
    return f"{name} {kind}"


def drawn_file(model: Path, draw: random.Random) -> Path:
    return draw.choice(sorted(model.iterdir()))


def _moved(old: str, new: str, to: Callable[[Any], Any] = lambda value: value) -> Callable[[dict[str, Any]], str]:
    def change(document: dict[str, Any]) -> str:
        if old in document:
            document[new] = to(document.pop(old))
        return f"{old} as {new}"

    return change


def _set(**values: Any) -> Callable[[dict[str, Any]], str]:
    def change(document: dict[str, Any]) -> str:
        document.update(values)
        return f"{values}"[:60]

    return change


def _dropped(key: str) -> Callable[[dict[str, Any]], str]:
    def change(document: dict[str, Any]) -> str:
        document.pop(key, None)
        return f"no {key}"

    return change


def _rope_parameters(document: dict[str, Any]) -> str:
    document["rope_parameters"] = {
        "rope_type": "default",
        **(document.pop("rope_scaling", None) or {}),
        "rope_theta": document.pop("rope_theta"),
    }
    return "rope_parameters of transformers 5"


def _rope_type(document: dict[str, Any]) -> str:
    if document["rope_scaling"]:
        document["rope_scaling"] = {**document["rope_scaling"], "type": document["rope_scaling"].pop("rope_type")}
    return "rope_scaling.type"


SPELLINGS: tuple[tuple[str, Callable[[dict[str, Any]], str]], ...] = (
    ("config.json", _rope_parameters),
    ("config.json", _rope_type),
    ("config.json", _moved("dtype", "torch_dtype")),
    ("config.json", _moved("dtype", "torch_dtype", lambda value: f"torch.{value}")),
    ("config.json", _moved("hidden_act", "hidden_activation")),
    ("config.json", _moved("num_hidden_layers", "n_layers")),
    ("config.json", _moved("num_key_value_heads", "num_kv_heads")),
    ("config.json", _moved("max_position_embeddings", "n_positions")),
    ("config.json", _moved("eos_token_id", "eos_token_id", lambda value: [value])),
    ("config.json", _moved("vocab_size", "n_vocab")),
    ("config.json", _moved("hidden_size", "n_embd")),
    ("config.json", _set(transformers_version="5.0.0")),
    ("config.json", _set(num_attention_heads=3)),
    ("config.json", _set(num_key_value_heads=3)),
    ("config.json", _set(num_hidden_layers=3)),
    ("config.json", _set(num_hidden_layers=1)),
    ("config.json", _set(vocab_size=256)),
    ("config.json", _set(intermediate_size=64)),
    ("config.json", _set(tie_word_embeddings=True)),
    ("config.json", _set(tie_word_embeddings=False)),
    ("config.json", _set(model_type="llama5")),
    ("config.json", _set(architectures=["Llama5ForCausalLM"])),
    ("config.json", _dropped("model_type")),
    ("config.json", _dropped("architectures")),
    ("config.json", _dropped("head_dim")),
    ("config.json", _dropped("tie_word_embeddings")),
    ("config.json", _dropped("dtype")),
    ("tokenizer_config.json", _set(tokenizer_class="TokenizersBackend")),
    ("tokenizer_config.json", _set(tokenizer_class="Qwen2Tokenizer")),
    ("tokenizer_config.json", _dropped("tokenizer_class")),
    ("tokenizer_config.json", _set(extra_special_tokens=["<|system|>", "<|user|>"])),
    ("tokenizer_config.json", _set(additional_special_tokens=["<|system|>", "<|user|>"])),
    ("tokenizer_config.json", _set(bos_token={"content": "<|begin|>", "special": True})),
    ("tokenizer_config.json", _set(chat_template=[{"name": "default", "template": TEMPLATE}])),
    ("tokenizer_config.json", _set(backend="tokenizers", is_local=False)),
    ("generation_config.json", _set(eos_token_id=[1])),
    ("generation_config.json", _set(do_sample=True, temperature=0.6, top_p=0.9)),
    ("special_tokens_map.json", _set(additional_special_tokens=["<|user|>"])),
)
FAULTS: tuple[Fault, ...] = (cut, missing, renamed, mixed, respelled, tensor)
