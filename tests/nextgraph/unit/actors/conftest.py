"""Names of one operation lie in one shard."""

from coroutines import handed_by
from nextgraph_broker import with_broker
from nextgraph_nodes import with_nodes
from placing import placed

__all__ = ["placed"]

broker = handed_by(with_broker)
other = handed_by(with_nodes, 1)
