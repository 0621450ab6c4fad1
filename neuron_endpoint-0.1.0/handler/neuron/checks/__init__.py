"""Checks of a plan before anything is compiled. They find what would fail later, or silently be replaced."""
