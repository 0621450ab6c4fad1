"""Compiled artifacts made ahead of a deployment: on this machine, or on a rented one as a SageMaker training job."""
