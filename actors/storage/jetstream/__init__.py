"""The log in NATS JetStream: see `store`."""
