"""Deploys a package as a SageMaker endpoint, and deletes it, with boto3. Each command can be repeated."""
