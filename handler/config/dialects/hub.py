"""Translates Hugging Face's variables, and those of LMI's starting guide that have no prefix.

LMI: deepjavalibrary/djl-serving, serving/docs/lmi/user_guides/starting-guide.md. `MAX_CONCURRENT_REQUESTS` has
the same meaning in text-generation-inference.
"""

from __future__ import annotations

from collections.abc import Mapping

from handler.config.assignment import Assignment, assign
from handler.config.dialects import vllm_names as engine
from handler.config.dialects.near_miss import reject_near_miss

FIELDS: Mapping[str, str] = {
    "HF_MODEL_ID": "model",
    "MODEL_ID": "model",
    "HF_TOKEN": "hf_token",
    "HUGGING_FACE_HUB_TOKEN": "hf_token",
    "HF_MODEL_TRUST_REMOTE_CODE": "trust_remote_code",
    "HF_TRUST_REMOTE_CODE": "trust_remote_code",
    "TENSOR_PARALLEL_DEGREE": "tensor_parallel_size",
    "MAX_BATCH_SIZE": "max_num_seqs",
    "MAX_CONCURRENT_REQUESTS": "max_concurrent",
}
REVISIONS = ("HF_REVISION", "HF_MODEL_REVISION")
# Only long names: a name close to a short one may be another tool's, not a typing error.
GUARDED = tuple(name for name in (*FIELDS, *REVISIONS) if name.startswith(("HF_", "HUGGING")))


def reads(name: str) -> bool:
    return name in FIELDS or name in REVISIONS


def translate(name: str, value: str) -> list[Assignment]:
    """Translates one variable.

    :raises SettingError: the value does not fit.
    """
    if name in REVISIONS:
        return engine.translate("revision", value, name)
    return [assign(FIELDS[name], value, name)]


def reject_misspelling(name: str) -> None:
    """Rejects a variable whose name is probably a typing error.

    :raises SettingError: the name is almost that of a known variable.
    """
    if name.startswith(("HF_", "HUGGING")):
        reject_near_miss(name, GUARDED, "a variable that this endpoint reads")
