"""Stateful sessions of SageMaker: which are open, and until when."""
