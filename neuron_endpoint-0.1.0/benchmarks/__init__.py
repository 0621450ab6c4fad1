"""Measurements of this project's container side by side with `vllm serve`; see README.md here."""
