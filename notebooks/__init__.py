"""Notebooks from a model to an endpoint. `python -m notebooks` runs them again and saves their outputs."""
