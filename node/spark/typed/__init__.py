"""Typed tables: entries of streams as columns that analysts query."""
