"""Models that are loaded and unloaded while the endpoint serves, each with an engine of its own."""
