"""Tries each grammar in a process that may die, before the engine's core compiles it."""
