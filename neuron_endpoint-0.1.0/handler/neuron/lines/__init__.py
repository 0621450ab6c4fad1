"""The lines, each a generation of vLLM and Neuron: their features, and how they spell a plan."""
