"""NextGraph's clients of simulated nodes."""
