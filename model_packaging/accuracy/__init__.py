"""Compares the greedy tokens of a deployed endpoint with those of a reference run."""
