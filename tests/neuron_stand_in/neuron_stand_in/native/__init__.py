"""The stand-in for the native plugin (1.x): its keys and its compile cache."""
