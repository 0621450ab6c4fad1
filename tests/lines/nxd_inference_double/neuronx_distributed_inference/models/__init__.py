"""As the real package."""
