"""vLLM's own OpenAI serving classes, run in this process: requests, replies, errors and fixes."""
