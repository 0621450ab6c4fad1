"""Builds the container images with docker, podman or buildah, whichever is there: `python -m image`."""
