"""Client sockets: reads with time limits, writes from the engine's loop, and lingering close."""
