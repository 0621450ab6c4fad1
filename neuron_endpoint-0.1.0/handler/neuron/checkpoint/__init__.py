"""Reads a model's config.json and safetensors headers, from a directory or S3."""
