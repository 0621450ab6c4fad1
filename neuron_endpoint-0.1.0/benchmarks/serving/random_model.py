"""Creates a small Llama with random weights, if no trained sample model is available.

The benchmark measures the work around the engine. So the model needs the right size and a real tokenizer, but no
meaningful output: 4.2 M parameters in bf16, a byte-level BPE of 4,096 entries, and a chat template.
"""

from __future__ import annotations

from pathlib import Path

VOCABULARY = 4096
SPECIAL_TOKENS = ("<|end|>", "<|user|>", "<|assistant|>", "<|system|>")
CHAT_TEMPLATE = (
    "{% for message in messages %}<|{{ message['role'] }}|>{{ message['content'] }}<|end|>{% endfor %}"
    "{% if add_generation_prompt %}<|assistant|>{% endif %}"
)


def write_random_model(directory: Path, seed: int = 0) -> Path:
    """Saves model and tokenizer in `directory`. The same seed gives the same files. Takes a few seconds."""
    directory.mkdir(parents=True, exist_ok=True)
    _write_weights(directory, seed, textless=_write_tokenizer(directory))
    return directory


def _write_tokenizer(directory: Path) -> list[int]:
    """Returns the tokens that are not text by themselves: special tokens and parts of characters."""
    # Python's own help is half a megabyte of English on every machine, so nothing is downloaded.
    from pydoc_data.topics import topics

    from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers
    from transformers import PreTrainedTokenizerFast

    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=VOCABULARY,
        special_tokens=list(SPECIAL_TOKENS),
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    tokenizer.train_from_iterator(topics.values(), trainer)
    fast = PreTrainedTokenizerFast(tokenizer_object=tokenizer, eos_token="<|end|>", pad_token="<|end|>")
    fast.chat_template = CHAT_TEMPLATE
    fast.save_pretrained(directory)
    texts = {token: fast.decode([token], skip_special_tokens=True) for token in range(VOCABULARY)}
    return [token for token, text in texts.items() if not text or "\ufffd" in text]


def _write_weights(directory: Path, seed: int, textless: list[int]) -> None:
    import torch
    from transformers import LlamaConfig, LlamaForCausalLM

    torch.manual_seed(seed)
    config = LlamaConfig(
        vocab_size=VOCABULARY,
        hidden_size=256,
        intermediate_size=688,
        num_hidden_layers=4,
        num_attention_heads=4,
        num_key_value_heads=4,
        max_position_embeddings=2048,
        tie_word_embeddings=True,
        bos_token_id=None,
        eos_token_id=0,
        pad_token_id=0,
    )
    model = LlamaForCausalLM(config)
    with torch.no_grad():
        # A logit of 0 is never the largest of thousands around 0. So a greedy reply is text for every prompt.
        model.get_input_embeddings().weight[textless] = 0.0
    model.to(torch.bfloat16).save_pretrained(directory)
