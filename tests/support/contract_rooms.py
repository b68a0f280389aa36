"""The parts of plug-ins in the load on simulated nodes, and the nodes of that load."""

from collections.abc import Iterator, Sequence
from typing import Final

from msgspec.structs import replace

from contract_load import CONFIG, NODE, PEER, PEER_CONFIG, STOPPED, Part, Round
from rillnode.node.config import Config, PlugInTable
from rillnode.node.ockam.config import ServicesTable
from rillnode.testing import Network
from rooms import modules

PARTS: Final[tuple[Part, ...]] = tuple(module.PART for module in modules("contract"))

GRANTS: Final = (*CONFIG.grants, *(grant for part in PARTS for grant in part.grants))

STOPPED_CONFIG: Final = Config(name=STOPPED, on_fatal="stay", grants=GRANTS)


def tables_of(node: str, rounds: Sequence[type[Round]]) -> Iterator[PlugInTable]:
    """What a node's configuration has for the clients of all plug-ins."""
    for part in PARTS:
        yield from part.tables(node, rounds)


def add_nodes(network: Network, rounds: Sequence[type[Round]]) -> None:
    """Add the node that all of this is about, its peer, one that is stopped, and those of parts."""
    network.add_node(PEER, config=PEER_CONFIG)
    config = replace(CONFIG, grants=GRANTS).having(*tables_of(NODE, rounds))
    network.add_node(NODE, peers=(PEER,), config=config)
    for part in PARTS:
        part.add_nodes(network)
    stopped = STOPPED_CONFIG.having(ServicesTable(), *tables_of(STOPPED, rounds))
    network.add_node(STOPPED, peers=(PEER,), config=stopped)
