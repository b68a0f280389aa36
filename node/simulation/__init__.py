"""Many nodes in one process, on a clock and a network that a seed decides."""
