"""vLLM 0.9 with its first engine, V0: that of the legacy fork for Neuron and of transformers-neuronx."""

import handler.engine.engine_client  # noqa: F401  it defers modules that vLLM imports
