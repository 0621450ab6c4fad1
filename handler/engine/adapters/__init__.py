"""LoRA adapters: their files, their names, loading and unloading, and their use by several processes."""
