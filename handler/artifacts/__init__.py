"""Compiled artifacts: keyed by what changes the graph, kept in S3, restored in seconds, compiled once for a fleet."""
