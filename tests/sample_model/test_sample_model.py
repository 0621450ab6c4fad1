"""The shipped sample model, looked at without an engine: files, size, tokenizer, template and facts."""

import json
import math
import random
import struct
from pathlib import Path
from typing import Any

import jinja2
import pytest
from jinja2.sandbox import ImmutableSandboxedEnvironment
from tokenizers import Tokenizer

import sample_model
from sample_model import facts
from sample_model.tokenizer import SPECIAL_TOKENS

WEIGHTS = sample_model.path()


def read(name: str) -> dict[str, Any]:
    values = json.loads((WEIGHTS / name).read_text(encoding="utf-8"))
    assert isinstance(values, dict)
    return values


@pytest.fixture(scope="module")
def tokenizer() -> Tokenizer:
    return Tokenizer.from_file(str(WEIGHTS / "tokenizer.json"))


def render(messages: list[dict[str, str]], add_generation_prompt: bool = True) -> str:
    """The chat template of tokenizer_config.json, set up as transformers does it."""

    def raise_exception(message: str) -> None:
        raise jinja2.TemplateError(message)

    environment = ImmutableSandboxedEnvironment(trim_blocks=True, lstrip_blocks=True)
    environment.globals["raise_exception"] = raise_exception
    template = environment.from_string(read("tokenizer_config.json")["chat_template"])
    return template.render(messages=messages, add_generation_prompt=add_generation_prompt)


@pytest.mark.parametrize(
    "name",
    ["config.json", "generation_config.json", "model.safetensors", "tokenizer.json", "tokenizer_config.json"],
)
def test_the_checkpoint_is_complete(name: str) -> None:
    assert (WEIGHTS / name).stat().st_size > 0


def test_it_is_a_small_llama_in_bfloat16() -> None:
    with (WEIGHTS / "model.safetensors").open("rb") as file:
        (size,) = struct.unpack("<Q", file.read(8))
        header = json.loads(file.read(size))
    header.pop("__metadata__", None)
    assert 1_000_000 <= sum(math.prod(tensor["shape"]) for tensor in header.values()) <= 4_000_000
    assert {tensor["dtype"] for tensor in header.values()} == {"BF16"}
    config = read("config.json")
    assert config["architectures"] == ["LlamaForCausalLM"]
    assert config["max_position_embeddings"] == 2048


def test_generation_is_left_to_the_request() -> None:
    config = read("generation_config.json")
    assert not {"temperature", "top_p", "top_k", "do_sample"} & set(config)
    assert config["eos_token_id"] == SPECIAL_TOKENS.index("<|end|>")


def test_ids_agree_between_tokenizer_and_configuration(tokenizer: Tokenizer) -> None:
    config = read("config.json")
    assert tokenizer.get_vocab_size() == config["vocab_size"]
    assert [tokenizer.token_to_id(token) for token in SPECIAL_TOKENS] == [0, 1, 2, 3, 4]
    assert (config["bos_token_id"], config["eos_token_id"]) == (0, 4)


@pytest.mark.parametrize(
    "text",
    ["", " ", "\n\n\t x", "Grüße, 世界! 👩‍👩‍👧 \u202e\u0000", "a" * 300, "f(x)\r\n  # \\", "\U0010ffff"],
)
def test_any_text_comes_back(tokenizer: Tokenizer, text: str) -> None:
    assert tokenizer.decode(tokenizer.encode(text).ids) == text


def test_random_text_comes_back(tokenizer: Tokenizer) -> None:
    source = random.Random(0)
    for _ in range(200):
        codes = (source.randrange(0x110000) for _ in range(source.randrange(40)))
        text = "".join(chr(code) for code in codes if not 0xD800 <= code < 0xE000)
        assert tokenizer.decode(tokenizer.encode(text).ids) == text


def test_a_completion_prompt_begins_with_bos(tokenizer: Tokenizer) -> None:
    assert tokenizer.encode("Hello").ids[0] == 0
    assert tokenizer.encode("Hello", add_special_tokens=False).ids[0] != 0


def test_the_chat_template_is_exact() -> None:
    messages = [
        {"role": "system", "content": "Be brief."},
        {"role": "user", "content": " Hello! "},
        {"role": "assistant", "content": "Hello."},
        {"role": "user", "content": "What is /ping?"},
    ]
    head = "<|bos|><|system|>Be brief.<|end|><|user|>Hello!<|end|><|assistant|>Hello.<|end|>"
    assert render(messages) == head + "<|user|>What is /ping?<|end|><|assistant|>"
    assert render(messages, add_generation_prompt=False) == head + "<|user|>What is /ping?<|end|>"


def test_an_unknown_role_is_refused() -> None:
    with pytest.raises(jinja2.TemplateError, match="Unknown role: wizard"):
        render([{"role": "wizard", "content": "Hello"}])


def test_facts_are_many_and_each_question_has_one_answer() -> None:
    known = facts.load()
    assert len(known) >= 60
    assert len({fact.name for fact in known}) == len({fact.answer for fact in known}) == len(known)
    asked = [question for fact in known for question in fact.questions]
    bare = {question.lower().rstrip("?!. "): fact.name for fact in known for question in fact.questions}
    assert len(set(asked)) == len(asked)
    for fact in known:
        assert 4 <= len(fact.questions) <= 10
        assert all(bare[question.lower().rstrip("?!. ")] == fact.name for question in fact.questions)


def test_questions_and_answers_fit(tokenizer: Tokenizer) -> None:
    lengths: list[int] = []
    for fact in facts.load():
        lengths.append(len(tokenizer.encode(fact.answer, add_special_tokens=False).ids))
        assert all(len(tokenizer.encode(question).ids) <= 64 for question in fact.questions)
    assert max(lengths) <= 256
    assert sum(length >= 100 for length in lengths) >= 5


def test_a_fact_is_found_by_name(tmp_path: Path) -> None:
    assert facts.by_name("say-hello").answer == "Hello."
    with pytest.raises(KeyError):
        facts.by_name("nothing")
    (tmp_path / "none.toml").write_text("fact = []")
    assert facts.load(tmp_path / "none.toml") == ()
