"""All code that imports vLLM. Everything that depends on vLLM's version is here."""

from __future__ import annotations

from handler.engine.vllm_api.deferred_module import defer

defer()  # here, since every import of vLLM comes after the import of this package
