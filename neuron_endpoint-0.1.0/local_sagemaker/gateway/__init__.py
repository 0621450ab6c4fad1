"""SageMaker's runtime: routes invocations to containers, and encodes streams as AWS event streams."""
