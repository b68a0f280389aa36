"""The clients of rillnode that use simulated nodes."""
