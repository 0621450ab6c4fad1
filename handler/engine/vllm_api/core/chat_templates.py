"""Finds the chat template that vLLM would use, with vLLM's own functions.

They are in `vllm.entrypoints.chat_utils` on 0.13.0, and in `vllm.renderers.hf` on 0.16.0, 0.24.0 and 0.32.0, with the
same arguments.
"""

from __future__ import annotations

from typing import Any

try:
    from vllm.renderers.hf import resolve_chat_template, resolve_chat_template_content_format
except ImportError:  # 0.13.0
    from vllm.entrypoints.chat_utils import resolve_chat_template_content_format
    from vllm.entrypoints.chat_utils import resolve_hf_chat_template as resolve_chat_template


def chat_template(tokenizer: Any, model_config: Any, configured: str | None = None) -> str | None:
    """The configured chat template, else the processor's, the tokenizer's, or vLLM's fallback for the model type."""
    template: str | None = resolve_chat_template(tokenizer, configured, None, model_config=model_config)
    return template


def content_as_parts(tokenizer: Any, template: str | None, model_config: Any, content_format: str = "auto") -> bool:
    """Whether the template expects a message's content as a list of parts rather than a string."""
    found = resolve_chat_template_content_format(template, None, content_format, tokenizer, model_config=model_config)
    return bool(found == "openai")
