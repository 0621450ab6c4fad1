"""What is done before an endpoint exists: its settings explained, checked and planned (`neuron-endpoint`)."""
