"""Bytes to messages and back: pure, without I/O; time and randomness are arguments."""
