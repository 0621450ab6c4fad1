"""The audio file of a request, as vLLM's speech classes take it. vLLM's HTTP routes check it, which are not used here.

vLLM decodes it in threads of its own, and limits what it decodes to (VLLM_MAX_AUDIO_DECODE_DURATION_S, 600 s).
"""

from __future__ import annotations

from io import BytesIO
from typing import Any, Final

import vllm.envs
from starlette.datastructures import UploadFile
from vllm.multimodal.media import audio as media
from vllm.utils.import_utils import PlaceholderModule

from handler.engine.api_routes import Route
from handler.errors import InvalidField, UnsupportedTask

LIMIT: Final = "VLLM_MAX_AUDIO_CLIP_FILESIZE_MB"
# vLLM does without it: it is tried first, and the other decoder reads the same files.
OPTIONAL: Final = "soundfile"
# Seconds, as OpenAI's API has it. Of less, vLLM makes a text of nothing, or an error with the samples.
SHORTEST: Final = 0.1


def upload(route: Route, audio: bytes) -> UploadFile:
    """The file for vLLM's request model.

    :raises UnsupportedTask: no decoder is installed. vLLM would call the file invalid.
    :raises InvalidField: it is empty, or too large.
    """
    missing = sorted(
        name for name, module in vars(media).items() if isinstance(module, PlaceholderModule) and name != OPTIONAL
    )
    if missing:
        packages = ", ".join((*missing, OPTIONAL))
        raise UnsupportedTask(
            route, f"needs packages that this image does not have ({packages})", "install vllm[audio] in the image"
        )
    if not audio:
        raise InvalidField("file", "it is empty")
    limit = int(vllm.envs.VLLM_MAX_AUDIO_CLIP_FILESIZE_MB * 2**20)
    if len(audio) > limit:
        raise InvalidField("file", f"it has {len(audio):,} bytes; at most {limit:,} are allowed ({LIMIT})")
    return UploadFile(BytesIO(audio))


def reject_short(serving: Any) -> None:
    """Makes one of vLLM's speech classes reject a file with next to no sound."""
    decode = serving._decode_and_chunk_speech_async

    async def decoded(audio: bytes) -> tuple[list[Any], float]:
        chunks, seconds = await decode(audio)
        if seconds < SHORTEST:
            raise InvalidField("file", f"it has {seconds:.3f} s of sound; the least is {SHORTEST} s")
        return chunks, seconds

    serving._decode_and_chunk_speech_async = decoded


def content(file: UploadFile) -> bytes:
    """The bytes of an `upload`."""
    assert isinstance(file.file, BytesIO), "upload made it"
    return file.file.getvalue()
