"""How many instances a load takes, what they cost and read, and which limit is met first: arithmetic, no AWS."""
