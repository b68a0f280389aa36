"""Names of one operation lie in one shard."""

from channel_support import with_house
from coroutines import handed_by
from hub_support import with_hub
from placing import placed

__all__ = ["placed"]

core = handed_by(with_hub)
house = handed_by(with_house)
