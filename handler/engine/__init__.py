"""The embedded vLLM engine. Only its subfolder `vllm_api` imports vLLM."""
