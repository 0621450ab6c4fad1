"""A double of NxD: README.md."""
