"""Suites of stores."""
