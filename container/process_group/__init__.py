"""What the processes of one endpoint share: state, admission, metrics, and their view of each other."""
