"""Compares the restore of compiled artifacts, and the fetch of a model, with other ways to read S3."""
