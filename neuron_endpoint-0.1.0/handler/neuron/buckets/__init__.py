"""Buckets: the shapes that a plan compiles graphs for, and the tokens that requests compute after padding to them."""
