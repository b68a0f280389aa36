"""Streamr's part of a run of the simulator: its clients, and the listener that they need."""

from collections.abc import Mapping, Sequence
from typing import Final

from msgspec.structs import replace

from rillnode.node.config import Config, GrantTable
from rillnode.node.simulated.history import History, LogContents
from rillnode.node.simulated.part import Cast, Scenario, SimulatedPart
from rillnode.node.simulated.programs import Program, Share
from rillnode.node.simulated.world import Machine, World
from rillnode.node.streamr.config import StreamrListener
from rillnode.node.streamr.simulation.messages import MADE_PREFIX, STREAMR_PORT, StreamrMessages
from rillnode.node.streamr.simulation.users import StreamrUser

KIND: Final = "streamr_users"


class StreamrPart(SimulatedPart):
    """One run's."""

    def __init__(self, scenario: Scenario, world: World, history: History) -> None:
        self._count = len(scenario.clients_named(KIND))
        messages = self._messages = StreamrMessages(history)
        world.network.on_harmed.append(messages.harmed_on)
        history.excuses.append(messages.is_altered)

    def configured(self, config: Config) -> Config:
        """A configuration with a `streamr` listener, where a scenario has clients for it."""
        if not self._count:
            return config
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

        return {KIND: user}

    def check(self, logs: LogContents) -> None:
        """What they have published is in the logs."""
        if self._count:
            self._messages.check(logs)
