"""Invocations of hosted endpoints: routing to instances, asynchronous inference, and injected errors."""
