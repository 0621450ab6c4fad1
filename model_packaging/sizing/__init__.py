"""Sizes an endpoint: rates by a roofline, instances and limits of a load, buckets for the lengths of a request log."""
