"""The checks before anything is compiled: what would fail an hour later, or fall back in silence."""
