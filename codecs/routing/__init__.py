"""Addresses, routes and the messages that follow them, in Ockam's wire form."""
