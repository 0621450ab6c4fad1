"""A double of NxD Inference: ../README.md."""
