"""Runs endpoints: model data, container processes, their health checks, and fleets of instances."""
