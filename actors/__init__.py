"""Behaviour: every stream, index, subscription and connection, and the storage under them."""
