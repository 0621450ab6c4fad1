"""OpenAI's schemas: chat, completions, and the bodies that vLLM's serving classes answer."""
