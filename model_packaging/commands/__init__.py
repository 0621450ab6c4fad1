"""One command a file: each reads its options, asks a module of `model_packaging` to do the work, and prints."""
