"""LoRA adapters over one engine: brought, checked, loaded, named in requests, and unloaded when nobody uses them."""
