"""Several serving processes on one engine: the leader owns the engine, the front ends join it."""
