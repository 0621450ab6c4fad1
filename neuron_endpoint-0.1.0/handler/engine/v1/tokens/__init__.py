"""The direct path of tokens from the engine core's socket to their sinks."""
