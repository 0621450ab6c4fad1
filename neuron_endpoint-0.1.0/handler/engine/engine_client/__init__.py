"""What every generation of vLLM shares: its `EngineClient`, its arguments, its processes. This imports vLLM."""

from __future__ import annotations

from handler.engine.engine_client.deferred_module import defer

defer()  # here, since every import of vLLM comes after the import of this package
