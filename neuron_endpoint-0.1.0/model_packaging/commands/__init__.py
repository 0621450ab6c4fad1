"""The commands of the command line, one per file. Each parses options, calls another module, and prints the result."""
