"""Downloads files in parts, over many connections at once: those of an artifact store, and the model's."""
