"""The endpoint's configuration: from the environment to one frozen `EndpointConfig`."""
