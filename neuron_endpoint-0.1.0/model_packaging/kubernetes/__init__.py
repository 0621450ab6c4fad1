"""Manifests for the same image on Kubernetes. Counts, sizes and times are computed from the plan."""
