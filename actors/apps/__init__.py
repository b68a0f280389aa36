"""Actors of applications: what runs them, and who reaches them."""
