"""Compares the container with `vllm serve` under the same load, and measures its parts."""
