"""The name of a variable that optimum-neuron looks up when it saves weights."""

NXD_LAYOUT_TRANSFORMATION_OPTIONS = "NXD_LAYOUT_TRANSFORMATION_OPTIONS"
