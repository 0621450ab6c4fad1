"""vLLM 0.9 with its first engine (V0)."""
