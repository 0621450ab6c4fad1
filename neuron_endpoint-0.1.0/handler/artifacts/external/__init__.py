"""Compiled artifacts that were made by other software (`NEURON_COMPILED_ARTIFACTS`): download, checks, findings."""
