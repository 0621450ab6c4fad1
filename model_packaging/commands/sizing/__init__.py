"""The commands that size an endpoint: capacity, predict, tune."""
