"""Noise: its handshakes and ciphers, and rillnode's own encrypted link."""
