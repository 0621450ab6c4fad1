"""An endpoint whose model transcribes: a Whisper that is made here, beside vLLM's own engine with the same files."""

from __future__ import annotations

import io
import json
import math
import subprocess
import sys
import wave
from array import array
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Final

import pytest

import sample_model
from tests.endpoint.serve_process import ENGINE_ENVIRONMENT, ServeProcess

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


pytestmark = [
    pytest.mark.engine,
    pytest.mark.skipif(find_spec("av") is None, reason="vLLM 0.29's environment alone has a decoder of audio"),
]
ROUTE = "/v1/audio/transcriptions"
TOKENS = 16
FIELDS = {"language": "en", "max_completion_tokens": str(TOKENS)}
SOUNDS = {"low": tone(1.5), "high": tone(1.5, 1760)}
SETTINGS = {"MAX_MODEL_LEN": "64", "DTYPE": "float32", "SERVED_MODEL_NAME": "whisper"}
PROGRAM = """
import json, sys, soundfile, vllm
if __name__ == "__main__":
    llm = vllm.LLM(sys.argv[1], dtype="float32", max_model_len=64, enforce_eager=True)
    texts = {}
    for path in sys.argv[4:]:
        sound = soundfile.read(path, dtype="float32")
        heard = {"prompt": "", "multi_modal_data": {"audio": sound}}
        asked = {"prompt": "<|startoftranscript|><|en|><|transcribe|><|notimestamps|>"}
        params = vllm.SamplingParams(temperature=0, max_tokens=int(sys.argv[2]))
        [output] = llm.generate({"encoder_prompt": heard, "decoder_prompt": asked}, params)
        texts[path] = output.outputs[0].text
    json.dump(texts, open(sys.argv[3], "w"))
"""


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_speech_model(tmp_path_factory.mktemp("whisper"))


@pytest.fixture(scope="module")
def texts(model: Path, tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """What vLLM's own engine makes of each sound."""
    directory = tmp_path_factory.mktemp("direct")
    program, written = directory / "direct.py", directory / "texts.json"
    program.write_text(PROGRAM)
    paths = {name: directory / f"{name}.wav" for name in SOUNDS}
    for name, path in paths.items():
        path.write_bytes(SOUNDS[name])
    command = [sys.executable, str(program), str(model), str(TOKENS), str(written), *map(str, paths.values())]
    environment = {
        "PATH": "/usr/bin:/bin",
        "HOME": str(directory),
        "VLLM_ENABLE_V1_MULTIPROCESSING": "0",
        **ENGINE_ENVIRONMENT,
    }
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=500, check=False)
    assert done.returncode == 0, done.stdout[-4000:] + done.stderr[-4000:]
    made = json.loads(written.read_text())
    return {name: made[str(path)] for name, path in paths.items()}


@pytest.fixture(scope="module")
def speech(model: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServeProcess]:
    directory = tmp_path_factory.mktemp("speech")
    settings = {f"SM_VLLM_{name}": value for name, value in SETTINGS.items()}
    limit = {"VLLM_MAX_AUDIO_CLIP_FILESIZE_MB": "1"}
    scratch = str(directory / "scratch")
    with ServeProcess(
        directory, {"ENDPOINT_MODEL": str(model), "ENDPOINT_SCRATCH": scratch, **settings, **limit}
    ).serving() as served:
        yield served


def test_the_text_is_that_of_vllms_own_engine(speech: ServeProcess, texts: dict[str, str]) -> None:
    import openai

    client = openai.OpenAI(base_url=f"{speech.url}/v1", api_key="unused", max_retries=0)
    assert texts["low"] != texts["high"]
    for name, sound in SOUNDS.items():
        options: dict[str, Any] = {"file": ("../../a.wav", sound), "model": "whisper", "language": "en"}
        more = {"max_completion_tokens": TOKENS}
        assert client.audio.transcriptions.create(**options, extra_body=more).text == texts[name]
        plain = client.audio.transcriptions.create(**options, response_format="text", extra_body=more)
        assert plain == texts[name]
        events = list(client.audio.transcriptions.create(**options, stream=True, extra_body=more))
        assert "".join(event.delta for event in events if event.type == "transcript.text.delta") == texts[name]
        assert events[-1].type == "transcript.text.done"
        assert events[-1].text == texts[name]
        for path in ("/invocations", ROUTE):
            reply = speech.client.post(path, data=FIELDS, files={"file": ("a.wav", sound)})
            assert (reply.status_code, reply.json()["text"]) == (200, texts[name]), reply.text
            assert reply.json()["usage"] == {"type": "duration", "seconds": 2}
            data = {**FIELDS, "stream": "true"}
            with speech.client.stream("POST", path, data=data, files={"file": ("a.wav", sound)}) as stream:
                assert stream.headers["Content-Type"] == "text/event-stream; charset=utf-8"
                *frames, done = [line.removeprefix("data: ") for line in stream.iter_lines() if line]
            assert done == "[DONE]"
            choices = [json.loads(frame)["choices"][0] for frame in frames]
            assert "".join(choice["delta"]["content"] for choice in choices) == texts[name]


def test_another_rate_a_long_sound_a_translation_and_segments(speech: ServeProcess) -> None:
    def answer(sound: bytes, route: str = "", **data: str) -> dict[str, Any]:
        headers = {"X-Amzn-SageMaker-Custom-Attributes": f"route={route}"} if route else {}
        files = {"file": ("a", sound)}
        reply = speech.client.post("/invocations", data={**FIELDS, **data}, files=files, headers=headers)
        assert reply.status_code == 200, reply.text
        document: dict[str, Any] = reply.json()
        return document

    assert answer(tone(1.5, rate=44_100))["text"]
    assert answer(tone(7))["usage"]["seconds"] == 7  # three windows of the model
    assert answer(SOUNDS["low"], "/v1/audio/translations").keys() == {"text"}
    verbose = answer(SOUNDS["low"], response_format="verbose_json", **{"timestamp_granularities[]": "segment"})
    assert verbose["duration"] == 1.5
    assert answer(SOUNDS["low"], language="")["text"]  # detected


@pytest.mark.parametrize(
    ("field", "data", "files"),
    [
        ("file", {}, {"file": ("a.wav", b"RIFF but no more" * 40)}),
        ("file", {}, {"file": ("a.wav", b"")}),
        ("file", {}, {"file": ("a.wav", tone(0))}),
        ("file", {}, {"file": ("a.wav", tone(0.09))}),
        ("file", {}, {"file": ("a.wav", tone(1)[:44] + bytes(2**20))}),
        ("file", {}, {"prompt": (None, b"no file")}),
        ("file", {}, {"file": (None, b"a text")}),
        ("sound", {}, {"sound": ("a.wav", tone(1))}),
        ("response_format", {"response_format": "srt"}, None),
        ("response_format", {"response_format": "xml"}, None),
        ("response_format", {"response_format": "diarized_json"}, None),
        ("response_format", {"response_format": "verbose_json", "stream": "true"}, None),
        ("timestamp_granularities[0]", {"timestamp_granularities[]": "word"}, None),
        ("language", {"language": "klingon"}, None),
        ("prompt", {"prompt": "<|a" * 2000}, None),
        ("temperature", {"temperature": "warm"}, None),
        ("temperature", {"temperature": "nan"}, None),
        ("repetition_penalty", {"repetition_penalty": "inf"}, None),
        ("temperature", {"temperature": "-1"}, None),
        ("stream", {"stream": "perhaps"}, None),
        ("max_completion_tokens", {"max_completion_tokens": "0"}, None),
        ("use_beam_search", {"use_beam_search": "true"}, None),
        ("model", {"model": "another"}, None),
    ],
)
def test_a_form_that_cannot_be_transcribed(
    speech: ServeProcess, field: str, data: dict[str, str], files: dict[str, tuple[str | None, bytes]] | None
) -> None:
    sent = files or {"file": ("a.wav", SOUNDS["low"])}
    reply = speech.client.post(ROUTE, data={"language": "en", **data}, files=sent)
    assert 400 <= reply.status_code < 500, reply.text
    assert reply.json()["error"]["param"] == field, reply.text
    assert reply.json()["error"]["message"]
    assert speech.ping() == (200, "")


def test_a_model_that_only_transcribes_generates_no_text(speech: ServeProcess) -> None:
    chat = {"messages": [{"role": "user", "content": "a"}]}
    for path, body in (("/invocations", {"inputs": "a"}), ("/invocations", chat), ("/v1/embeddings", {"input": "a"})):
        reply = speech.client.post(path, json=body)
        assert (reply.status_code, reply.json()["error"]["code"]) == (400, "unsupported_task"), reply.text
        assert ROUTE in reply.json()["error"]["message"] or "form" in reply.json()["error"]["message"]
    reply = speech.client.post(ROUTE, json={"model": "whisper"})
    assert (reply.status_code, reply.json()["error"]["param"]) == (400, "file")


def test_its_document_and_metrics(speech: ServeProcess) -> None:
    paths = speech.client.get("/openapi.json").json()["paths"]
    for path in (ROUTE, "/invocations"):
        assert "multipart/form-data" in paths[path]["post"]["requestBody"]["content"]
    assert f'route="{ROUTE}"' in speech.client.get("/metrics").text
