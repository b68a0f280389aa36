"""Clients of Ockam's hubs, and the client's end of secure channels."""
