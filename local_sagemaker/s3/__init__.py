"""The local S3 server: moto's, for this machine only."""
