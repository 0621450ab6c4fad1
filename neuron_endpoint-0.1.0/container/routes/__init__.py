"""The paths the container serves, a file each."""
