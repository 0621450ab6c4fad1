"""`neuron-endpoint local`: SageMaker on this machine, for plain boto3."""

from local_sagemaker.cli import local as command

__all__ = ["command"]
