"""The engine: what makes actors run."""
