"""Streamr's part of a run of the simulator: its clients, and the listener that they need."""

from collections.abc import Mapping, Sequence

from msgspec.structs import replace

from rillnode.node.config import Config, GrantTable
from rillnode.node.simulated.history import History, LogContents
from rillnode.node.simulated.part import Cast, SimulatedPart
from rillnode.node.simulated.programs import Program, Share
from rillnode.node.simulated.tables import Scenario
from rillnode.node.simulated.world import Machine, World
from rillnode.node.streamr.config import StreamrListener
from rillnode.node.streamr.simulation.messages import MADE_PREFIX, STREAMR_PORT, StreamrMessages
from rillnode.node.streamr.simulation.table import StreamrClients
from rillnode.node.streamr.simulation.users import StreamrUser


class StreamrPart(SimulatedPart):
    """One run's."""

    def __init__(self, _: StreamrClients, __: Scenario, world: World, history: History) -> None:
        messages = self._messages = StreamrMessages(history)
        world.network.on_harmed.append(messages.harmed_on)
        history.excuses.append(messages.is_altered)

    def configured(self, config: Config) -> Config:
        """A configuration with a `streamr` listener."""
        grants = (
            GrantTable(who="eth:*", streams="events*", may=("push", "pull", "subscribe")),
            GrantTable(who="eth:*", streams=f"{MADE_PREFIX}*", may=("create",)),
        )
        return replace(config, grants=(*config.grants, *grants)).having(
            StreamrListener(
                listen=f"{config.name}:{STREAMR_PORT}",
                allow_plain=True,
                verifying_threads=1,  # as it is everywhere, whatever the machine has
            )
        )

    def clients(self, share: Share, nodes: Sequence[str]) -> Mapping[str, Cast]:
        """Those who publish and subscribe."""

        def user(machine: Machine, node: str, _: int) -> Program:
            return StreamrUser(share, machine, node, self._messages)

        return {"w": user}

    def check(self, logs: LogContents) -> None:
        """What they have published is in the logs."""
        self._messages.check(logs)
