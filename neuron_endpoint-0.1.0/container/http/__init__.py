"""HTTP/1.x on the serving process's loop: from a connection's bytes to requests, and from replies to bytes."""
