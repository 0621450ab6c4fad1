"""vLLM's engine core: starting it, its parameters, its processes, its metrics, and its fixes for single versions."""
