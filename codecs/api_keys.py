"""API keys: what clients that hold no key pair show, and what a configuration keeps of them."""

import hashlib
from typing import Final

API_KEY: Final = "apikey:"
"""What the principal of a key's holder begins with."""


def hash_of(api_key: str) -> str:
    """The hash that stands for an API key in the configuration: SHA-256 in hex.

    Keys are 256 random bits, so that a slow hash would add nothing.
    """
    return hashlib.sha256(api_key.encode("utf-8", "surrogatepass")).hexdigest()
