"""The lines of vLLM on Neuron ("dialects"): one plan, each line's spelling of it."""
