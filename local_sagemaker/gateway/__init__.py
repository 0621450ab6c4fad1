"""SageMaker's runtime: selects containers, forwards invocations, encodes event streams; asynchronous inference."""
