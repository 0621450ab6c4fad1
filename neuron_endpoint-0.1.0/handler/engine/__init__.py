"""The embedded vLLM engine. Only `engine_client`, `v0` and `v1` import vLLM."""
