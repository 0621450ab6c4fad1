"""Log, metrics, CloudWatch lines and traces of requests, and the Neuron monitor."""
