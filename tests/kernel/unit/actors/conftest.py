"""Names of one operation lie in one shard."""

from actor_support import run
from channel_support import with_house
from core_support import with_core
from coroutines import handed_by
from placing import placed

__all__ = ["placed"]

core = handed_by(with_core)
base = handed_by(run)
clock = handed_by(run, 1)
system = handed_by(run)
house = handed_by(with_house)
