"""Batch transform: sends records from S3 to a container that runs for one job, and writes the replies to S3."""
