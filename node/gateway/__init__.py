"""The HTTP door of a node."""
