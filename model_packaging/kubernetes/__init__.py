"""The same image on Kubernetes: manifests whose counts, sizes and times come from the plan, not from a template."""
