"""Actors of applications: addresses that clients serve."""
