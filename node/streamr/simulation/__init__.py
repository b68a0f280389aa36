"""Streamr's clients of simulated nodes."""
