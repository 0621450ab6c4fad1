"""How a fleet compiles an artifact once: the lease, the compile under it, and the memory of failed compiles."""
