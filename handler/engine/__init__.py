"""The embedded vLLM engine: the only place that imports vLLM, and that only in `vllm_api`."""
