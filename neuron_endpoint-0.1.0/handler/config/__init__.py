"""The endpoint's configuration: reads the environment, files and S3 into one frozen `EndpointConfig`."""
