"""A double of `transformers_neuronx.constants`."""

LAYOUT_BSH = "BSH"
