"""Reading a request log for `neuron-endpoint size --log`."""
