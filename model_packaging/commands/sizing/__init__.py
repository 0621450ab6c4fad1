"""The commands that size an endpoint: capacity, tune."""
