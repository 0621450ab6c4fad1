"""Finds the model (a directory, an S3 prefix or a hub id) and downloads what the engine needs as local files."""
