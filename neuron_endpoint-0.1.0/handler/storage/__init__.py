"""Access to S3 and to directories: listing, parallel downloads, archives, safe paths, file headers."""
