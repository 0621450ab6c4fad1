"""Translates the settings of NxD Inference into settings of the native plugin."""
