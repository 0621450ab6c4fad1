"""Reading a request log for `neuron-endpoint tune`."""
