"""Stateful sessions: who may go on with which, and until when."""
