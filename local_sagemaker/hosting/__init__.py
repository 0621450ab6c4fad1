"""What stands behind an endpoint: model data, processes, their health, and the fleets they make."""
