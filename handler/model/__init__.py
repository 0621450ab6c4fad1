"""Where the model is: a directory, an S3 prefix, or a hub id; brought to a local path where it must be."""
