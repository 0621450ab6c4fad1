"""Makes an engine plan from a configuration."""
