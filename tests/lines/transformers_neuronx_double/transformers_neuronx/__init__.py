"""A double of AWS's transformers-neuronx: ../README.md."""
