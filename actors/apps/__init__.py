"""Runs actors of applications, and routes messages to them."""
