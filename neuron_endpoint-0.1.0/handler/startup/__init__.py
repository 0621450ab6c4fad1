"""The start of an endpoint, its state while it serves, and models that are loaded later."""
