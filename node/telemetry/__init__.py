"""Spans of what a node does."""
