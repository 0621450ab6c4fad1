"""Batch transform: records from S3, through a container that lives for one job, back to S3."""
