"""Adds a log on NATS JetStream to a node."""
