"""Ockam: routing messages and the payload protocols of its stream service."""
