"""Replies of the engine as HTTP: sinks, whole replies and streams, JSON Lines, WebSocket frames."""
