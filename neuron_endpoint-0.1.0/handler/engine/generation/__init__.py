"""One generation: its parameters, the limits that it must keep to, and how its prompt is rendered."""
