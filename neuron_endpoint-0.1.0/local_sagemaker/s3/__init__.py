"""The local S3 server: moto's, with its objects stored in files."""
