"""Takes syslog messages into a stream of a rillnode node."""
