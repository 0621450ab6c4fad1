"""Predicts rates and latencies of a model on an instance from a roofline, and compares them with published figures."""
