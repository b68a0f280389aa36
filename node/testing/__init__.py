"""Plants failures in actors, for tests of applications."""
