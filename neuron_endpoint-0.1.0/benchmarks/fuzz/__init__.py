"""Sends what no good client sends, and watches what others notice of it."""
