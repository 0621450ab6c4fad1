"""NxD Inference's NeuronConfig without NxD Inference: its keys, its defaults and the rules that raise in it."""
