"""Makes the helpers beside it importable for the tests below."""
