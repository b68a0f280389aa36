"""Names of one operation lie in one shard."""

from core_support import with_core
from coroutines import handed_by
from placing import placed

__all__ = ["placed"]

core = handed_by(with_core)
