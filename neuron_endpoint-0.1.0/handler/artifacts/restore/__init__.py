"""Restores compiled artifacts from the store to a directory: parallel, resumable and checked while they stream."""
