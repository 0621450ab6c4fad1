"""From a pushed package to an endpoint, and back to nothing: with boto3 alone, repeatable after any interruption."""
