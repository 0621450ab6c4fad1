"""Runs endpoints and transform jobs: model data, container processes, their health checks, fleets of instances."""
