"""SageMaker on one machine: plain boto3 clients in front, processes of the container behind."""
