"""Wiring and operation: configuration, the node, clients, command line, HTTP."""
