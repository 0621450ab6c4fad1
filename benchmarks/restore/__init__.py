"""Compares the restore of compiled artifacts with s5cmd, boto3 and cp."""
