"""The engine of a shared log on NATS JetStream, for stores of several machines."""
