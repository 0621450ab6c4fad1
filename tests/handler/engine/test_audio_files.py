"""The audio file of a request, before vLLM decodes it."""

from __future__ import annotations

from typing import Any

import pytest

from handler.engine.api_routes import Route
from handler.errors import InvalidField, UnsupportedTask


@pytest.fixture(scope="module")
def vllm_audio() -> Any:
    return pytest.importorskip("vllm.multimodal.media.audio", reason="vLLM 0.16 and later")


@pytest.fixture
def decoder(vllm_audio: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("av", "librosa", "soundfile"):
        monkeypatch.setattr(vllm_audio, name, object(), raising=False)


def test_without_a_decoder_the_error_names_the_packages(vllm_audio: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    from vllm.utils.import_utils import PlaceholderModule

    from handler.engine.v1.serving import audio_files

    monkeypatch.setattr(vllm_audio, "av", PlaceholderModule("av"), raising=False)
    with pytest.raises(UnsupportedTask, match=r"av, .*soundfile.*vllm\[audio\]") as raised:
        audio_files.upload(Route.TRANSCRIPTIONS, b"RIFF")
    assert raised.value.param == Route.TRANSCRIPTIONS


def test_a_file_is_neither_empty_nor_larger_than_vllms_limit(decoder: None, monkeypatch: pytest.MonkeyPatch) -> None:
    from handler.engine.v1.serving import audio_files

    monkeypatch.setenv(audio_files.LIMIT, "1")
    for size in (0, 2**20 + 1):
        with pytest.raises(InvalidField) as raised:
            audio_files.upload(Route.TRANSCRIPTIONS, bytes(size))
        assert raised.value.param == "file"
    assert audio_files.content(audio_files.upload(Route.TRANSCRIPTIONS, bytes(2**20))) == bytes(2**20)
