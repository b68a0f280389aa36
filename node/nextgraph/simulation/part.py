"""NextGraph's part of a run of the simulator: its clients, and the listener that they need."""

from collections.abc import Mapping, Sequence

from msgspec.structs import replace

from rillnode.node.config import Config, GrantTable
from rillnode.node.nextgraph.config import NextgraphListener
from rillnode.node.nextgraph.simulation.audit import NEXTGRAPH_PORT, NextgraphAudit
from rillnode.node.nextgraph.simulation.document import Document
from rillnode.node.nextgraph.simulation.reading import read_documents
from rillnode.node.nextgraph.simulation.table import NextgraphClients
from rillnode.node.nextgraph.simulation.users import NextgraphUser
from rillnode.node.simulated.history import History
from rillnode.node.simulated.part import Cast, SimulatedPart
from rillnode.node.simulated.programs import Program, Share
from rillnode.node.simulated.tables import Scenario
from rillnode.node.simulated.world import Machine, World


class NextgraphPart(SimulatedPart):
    """One run's.

    Attributes:
        documents: what its clients write together, by the node that is their home.
    """

    def __init__(self, _: NextgraphClients, __: Scenario, world: World, history: History) -> None:
        self._world = world
        self._history = history
        self.documents: dict[str, Document] = {}
        self._frames = NextgraphAudit(history)
        world.network.on_sent.append(self._frames.sent)

    def configured(self, config: Config) -> Config:
        """A configuration with a `nextgraph` listener.

        What they publish may be read over other links, too.
        """
        listen = f"{config.name}:{NEXTGRAPH_PORT}"
        grant = GrantTable(who="noise:*", streams="nextgraph/*", may=("pull",))
        return replace(config, grants=(*config.grants, grant)).having(
            NextgraphListener(listen=listen, registration="open", allow_plain=True)
        )

    def clients(self, share: Share, nodes: Sequence[str]) -> Mapping[str, Cast]:
        """Those who write a document together."""

        def user(machine: Machine, node: str, _: int) -> Program:
            home = share.nodes[0] if share.nodes else node
            if home not in self.documents:
                document = self.documents[home] = Document(self._world, self._history, home)
                self._frames.words.append(document.inner.id)
            return NextgraphUser(share, machine, node, self.documents[home])

        return {"g": user}

    async def read(self, seconds: float) -> None:
        """Read the documents of all nodes."""
        await read_documents(self._world, [*self.documents.values()], seconds)
