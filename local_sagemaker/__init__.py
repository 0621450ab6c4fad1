"""SageMaker's runtime on one machine: plain boto3 in front, a container's process behind."""
