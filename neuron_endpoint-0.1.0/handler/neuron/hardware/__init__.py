"""The machine: instance type, cores, memory, installed versions, and the reports of neuron-monitor."""
