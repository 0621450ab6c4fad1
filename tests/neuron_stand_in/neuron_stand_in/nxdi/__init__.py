"""The stand-in for the NxDI plugin (0.5.x, vLLM 0.16.0)."""
