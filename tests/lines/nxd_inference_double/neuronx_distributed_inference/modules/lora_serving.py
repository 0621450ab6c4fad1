"""LoRA, which this double does not have."""


class LoraServingConfig:
    """As the name says."""


class LoraCheckpoint:
    """As the name says."""
