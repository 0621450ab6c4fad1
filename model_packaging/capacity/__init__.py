"""Computes the instances of a load, their cost and S3 reads, and the first limit. It calls no AWS service."""
