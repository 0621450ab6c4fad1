"""The acceptor, gunicorn and its worker, the port, the watchdog, memory and file descriptors of the serving process."""
