"""NeuronConfig without NxD Inference: its keys, defaults and rules, so that a laptop can check a configuration."""
