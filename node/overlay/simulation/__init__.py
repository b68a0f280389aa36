"""The overlay in the simulator: a stream that nodes share, and how messages spread."""
