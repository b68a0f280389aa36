"""Ockam's part of a run of the simulator: its clients, and the listeners that they need."""

from collections.abc import Mapping, Sequence

from msgspec.structs import replace

from rillnode.actors.core.access import Verb
from rillnode.node.config import Config, GrantTable
from rillnode.node.ockam.config import ChannelTable, OckamListener
from rillnode.node.ockam.simulation.channel_audit import ChannelAudit
from rillnode.node.ockam.simulation.channel_users import CHANNEL_IDLE_SECONDS, ChannelUser
from rillnode.node.ockam.simulation.table import OckamClients
from rillnode.node.ockam.simulation.tcp import OCKAM_PORT
from rillnode.node.ockam.simulation.tcp_users import OckamTcpUser
from rillnode.node.ockam.simulation.users import OckamUser
from rillnode.node.simulated.history import History
from rillnode.node.simulated.part import Cast, SimulatedPart
from rillnode.node.simulated.programs import Program, Share
from rillnode.node.simulated.tables import Scenario
from rillnode.node.simulated.world import Machine, World


class OckamPart(SimulatedPart):
    """One run's."""

    def __init__(self, table: OckamClients, _: Scenario, world: World, history: History) -> None:
        self._plain, self._channels = bool(table.tcp_users), bool(table.channel_users)
        self._audit = ChannelAudit(history)
        users = (f"x{number}" for number in range(table.channel_users))
        self._keys = tuple(world.channel_key_of(user).public_hex for user in users)
        world.network.unproven_ports.add(OCKAM_PORT)

    def configured(self, config: Config) -> Config:
        """A configuration with an `ockam` listener or secure channels, where clients need them."""
        plain, channels = self._plain, self._channels
        if not plain and not channels:
            return config
        may_use: tuple[Verb, ...] = ("create", "push", "pull")
        grants = [
            GrantTable(who=who, streams="events*", may=may_use)
            for who, wanted in (("anonymous", plain), ("ockam:*", channels))
            if wanted
        ]
        table = ChannelTable(enabled=channels, allow=self._keys, idle_seconds=CHANNEL_IDLE_SECONDS)
        listen = f"{config.name}:{OCKAM_PORT}"
        return replace(config, grants=(*config.grants, *grants)).having(
            OckamListener(listen=listen, allow_plain=True, channel=table)
        )

    def clients(self, share: Share, nodes: Sequence[str]) -> Mapping[str, Cast]:
        """Those who speak Ockam's protocols: over our links, plain TCP and secure channels."""

        def channel_user(machine: Machine, node: str, number: int) -> Program:
            following = nodes[(nodes.index(node) + 1) % len(nodes)]
            far = node if number % 2 else following
            return ChannelUser(share, machine, node, far=far, audit=self._audit)

        return {
            "o": lambda machine, node, _: OckamUser(share, machine, node),
            "t": lambda machine, node, _: OckamTcpUser(share, machine, node),
            "x": channel_user,
        }
