"""All code that imports vLLM. Everything that depends on vLLM's version is here."""
