"""LoRA adapters: their files, their names, loading and unloading."""
