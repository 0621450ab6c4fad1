"""What is known of Neuron: lines ("dialects"), instances, NeuronConfig's rules, and the checks before a compile."""
