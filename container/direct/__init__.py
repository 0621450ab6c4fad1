"""Small plain requests, from their first byte to their reply's last on the engine's loop, without a thread."""
