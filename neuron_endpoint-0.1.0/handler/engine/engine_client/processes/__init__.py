"""What runs in vLLM's own processes, and what is known of them: cores and workers."""
