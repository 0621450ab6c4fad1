"""Chooses buckets, batches and segments for the lengths of a request log."""
