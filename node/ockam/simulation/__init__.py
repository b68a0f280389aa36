"""Peers of simulated nodes that speak Ockam: stream protocols, plain TCP, secure channels."""
