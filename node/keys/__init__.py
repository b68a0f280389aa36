"""Key files, and the change of a key."""
