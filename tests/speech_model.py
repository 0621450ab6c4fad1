"""Writes a Whisper of some hundred kB: random weights, the sample model's tokenizer. Its text depends on the audio."""

from __future__ import annotations

import io
import json
import math
import wave
from array import array
from pathlib import Path
from typing import Final

import sample_model

RATE: Final = 16_000
MELS: Final = 16
END: Final = "<|endoftext|>"
WORDS: Final = (END, "<|startoftranscript|>", "<|transcribe|>", "<|translate|>", "<|notimestamps|>", "<|prev|>")
TIMES: Final = tuple(f"<|{step * 0.02:.2f}|>" for step in range(151))


def write_speech_model(directory: Path) -> Path:
    """Writes a checkpoint. It listens to 3 s at once."""
    import torch
    from tokenizers import AddedToken, Tokenizer
    from transformers import WhisperConfig, WhisperForConditionalGeneration
    from transformers.models.whisper.tokenization_whisper import LANGUAGES

    directory.mkdir(parents=True, exist_ok=True)
    tokenizer = Tokenizer.from_file(str(sample_model.path() / "tokenizer.json"))
    words = (*WORDS, *(f"<|{language}|>" for language in LANGUAGES))
    tokenizer.add_special_tokens([AddedToken(word, special=True) for word in words])
    tokenizer.add_tokens([AddedToken(time, special=False) for time in TIMES])
    tokenizer.save(str(directory / "tokenizer.json"))
    end = tokenizer.token_to_id(END)
    config = WhisperConfig(
        vocab_size=tokenizer.get_vocab_size(),
        num_mel_bins=MELS,
        d_model=64,
        encoder_layers=1,
        decoder_layers=1,
        encoder_attention_heads=2,
        decoder_attention_heads=2,
        encoder_ffn_dim=128,
        decoder_ffn_dim=128,
        max_source_positions=150,
        max_target_positions=64,
        bos_token_id=end,
        eos_token_id=end,
        pad_token_id=end,
        decoder_start_token_id=tokenizer.token_to_id("<|startoftranscript|>"),
    )
    torch.manual_seed(1)
    model = WhisperForConditionalGeneration(config)
    with torch.no_grad():
        for parameter in model.parameters():
            if parameter.dim() > 1:
                parameter.normal_(std=2 / math.sqrt(parameter[0].numel()))
    model.save_pretrained(directory)
    extractor = {
        "feature_extractor_type": "WhisperFeatureExtractor",
        "processor_class": "WhisperProcessor",
        "feature_size": MELS,
        "sampling_rate": RATE,
        "chunk_length": 3,
    }
    (directory / "preprocessor_config.json").write_text(json.dumps(extractor))
    names = {"tokenizer_class": "PreTrainedTokenizerFast", "eos_token": END}
    (directory / "tokenizer_config.json").write_text(json.dumps(names))
    return directory


def tone(seconds: float, hertz: float = 440, rate: int = RATE) -> bytes:
    """A WAV file with a tone of a rising volume."""
    samples = int(seconds * rate)
    levels = array(
        "h", (int(30_000 * (at / samples) * math.sin(2 * math.pi * hertz * at / rate)) for at in range(samples))
    )
    sound = io.BytesIO()
    with wave.open(sound, "wb") as file:
        file.setparams((1, 2, rate, samples, "NONE", ""))
        file.writeframes(levels.tobytes())
    return sound.getvalue()
