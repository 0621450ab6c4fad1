"""Single instances: their processes or Docker containers, health checks, model data and selection."""
