"""Ockam beyond the streams: hub services, secure channels, clients of other people's hubs."""
