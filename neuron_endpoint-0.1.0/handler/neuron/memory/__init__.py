"""Estimates the device and host memory that a configuration needs."""
