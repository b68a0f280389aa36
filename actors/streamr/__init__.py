"""Streamr's clients on the common log: publishing, subscribing, resends, key exchange."""
