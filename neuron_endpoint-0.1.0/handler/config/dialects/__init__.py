"""Translators from the names of other tools and images (vLLM, SageMaker, LMI, Hugging Face, Neuron) to our fields."""
