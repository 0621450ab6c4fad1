"""What identifies a compiled artifact: its key, the checkpoint, the software versions, and why a key was not found."""
