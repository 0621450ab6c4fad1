"""A double of `transformers_neuronx.mistral.model`: a Mistral without a sliding window is a Llama."""

from transformers_neuronx.llama.model import LlamaForSampling


class MistralForSampling(LlamaForSampling):
    """As LlamaForSampling."""
