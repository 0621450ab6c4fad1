"""vLLM 0.11 and later: `AsyncLLM` by its public interface, and what is proven on single versions beside it."""

import handler.engine.engine_client  # noqa: F401  it defers modules that vLLM imports
