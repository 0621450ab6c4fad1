"""Everything about Neuron: lines (generations of vLLM and Neuron), instances, NeuronConfig, memory, and the checks
before a compile.
"""
