"""The way from a model to an endpoint, as notebooks; `python -m notebooks` runs them again and keeps what they show."""
