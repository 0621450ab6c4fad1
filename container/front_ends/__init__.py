"""Several processes that speak HTTP over one engine: a leader that starts and owns it, and the front ends."""
