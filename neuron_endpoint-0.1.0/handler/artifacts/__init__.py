"""Compiled artifacts: their key, the store in S3, the restore, and the lease under which a fleet compiles once."""
