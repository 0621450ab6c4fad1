"""Runs a server at saturation for a long time, and checks that nothing leaks."""
