"""The caches of the compilers themselves: NEFF files of the Neuron compiler, and torch.compile's files on a CPU."""
