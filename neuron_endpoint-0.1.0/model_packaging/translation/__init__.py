"""Translates what starts a model elsewhere (a command, a script, `serving.properties`) into settings."""
