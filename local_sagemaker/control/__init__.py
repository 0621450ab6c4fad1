"""SageMaker's control plane: the JSON protocol, its resources and what is kept of them."""
