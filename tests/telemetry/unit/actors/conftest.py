"""Names of one operation lie in one shard."""

from placing import placed

__all__ = ["placed"]
