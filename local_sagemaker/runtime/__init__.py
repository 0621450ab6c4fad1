"""Invocations of hosted endpoints: routing to instances and asynchronous inference."""
