"""Names of one operation lie in one shard."""

from core_support import with_core
from coroutines import handed_by
from placing import placed
from streamr_support import with_streamr

__all__ = ["placed"]

node = handed_by(with_streamr)
core = handed_by(with_core)
