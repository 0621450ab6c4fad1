"""Whole models beside the one of the start: an engine each, in one serving process (multi-model endpoints)."""
