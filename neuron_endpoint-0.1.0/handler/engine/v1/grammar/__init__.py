"""Grammars: tried before the engine compiles them, and how vLLM ends a request because of one."""
