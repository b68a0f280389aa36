"""What a node adds for a log on NATS JetStream."""
