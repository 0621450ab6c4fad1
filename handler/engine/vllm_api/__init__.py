"""The one place that knows vLLM's version: everything of vLLM's Python interfaces that this software touches."""
