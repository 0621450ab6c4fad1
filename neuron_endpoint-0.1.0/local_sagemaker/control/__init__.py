"""SageMaker's control plane: the JSON protocol, the operations on its resources, and their storage."""
