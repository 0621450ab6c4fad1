"""Reads the sources of a configuration and merges them into one `EndpointConfig`."""
