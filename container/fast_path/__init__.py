"""Small plain requests are read and answered on the engine's event loop. A rule selects them."""
