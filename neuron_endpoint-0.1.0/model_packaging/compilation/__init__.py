"""Compiles a model ahead of its deployment: on this machine, or in a SageMaker training job."""
