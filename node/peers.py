"""A node's peers: who they are, how they are dialled, and who may send to them."""

import re
from collections.abc import Callable, Sequence
from dataclasses import asdict, replace
from fnmatch import translate
from functools import cached_property, partial
from typing import Any, Final

from rillnode.actors.core.access import Access
from rillnode.actors.core.delivery import Origin
from rillnode.actors.core.links.connection import PeerContext
from rillnode.actors.core.links.dialling import PeerActor, PeerSettings, PeerStatus, StopPeer
from rillnode.actors.core.links.directory import PeerDirectory
from rillnode.actors.engine.system import Cell
from rillnode.actors.ports import Clock, Dialer
from rillnode.codecs.framing import LinkCodec
from rillnode.codecs.keys import Identity
from rillnode.codecs.noise.handshake import DH_BYTES
from rillnode.codecs.noise.link import NoiseLink
from rillnode.codecs.routing.dialects import dialling_codec
from rillnode.codecs.routing.routes import TCP
from rillnode.node.config import Config, ListenAddress, PeerTable, parse_address
from rillnode.node.listening import noise_limits
from rillnode.transports.dialer import TcpDialer
from rillnode.transports.groups import LinkGroup
from rillnode.transports.links import OCKAM_LIMITS, LinkLimits

ADDRESS_PREFIX: Final = b"peer/"
"""Begins the local address of each configured peer; its name follows."""

MayUse = Callable[[str], bool]
"""Tells whether a principal may send to a peer."""

_HOST: Final = re.compile(r"[A-Za-z0-9_.-]{1,253}|[0-9A-Fa-f:.]{2,45}")


class Peers:
    """The peers of one node, and the other TCP addresses that administrators send to.

    A message whose first hop is the TCP address of a configured peer, or `peer/<name>`, goes to
    that peer. Any other TCP address is dialled for principals that administer, and is unknown for
    all others: nobody else makes the node reach out to addresses of his choice.
    """

    def __init__(self, config: Config, identity: Identity) -> None:
        self._config = config
        self._identity = identity
        self._at: dict[ListenAddress, bytes] = {}
        self._may_use: dict[bytes, MayUse] = {}
        self._statuses: dict[str, PeerStatus] = {}
        self._stopped = False

    def start(self, context: PeerContext, clock: Clock) -> None:
        """Spawn an actor for each configured peer, and take TCP addresses as first hops."""
        self._context = context
        self._access = context.access
        self._clock = clock
        actor = context.actor(PeerActor)
        self._directory = PeerDirectory(context, ADDRESS_PREFIX, self._admits, actor)
        for table in self._config.peers:
            self._add_configured(table)
        context.router.register_transport(TCP, self._resolve)

    def stop(self) -> None:
        """Dial no more; open links stay, and answers still come over them."""
        self._stopped = True
        if hasattr(self, "_directory"):
            for cell in self._directory.cells():
                self._context.system.post(cell, StopPeer())

    async def close(self) -> None:
        """Close all dialled links and wait for them."""
        for dialer in self._dialers():
            await dialer.close("the node is stopping")

    def groups(self) -> Sequence[LinkGroup]:
        """The links that were dialled, for who watches them."""
        return [dialer.group for dialer in self._dialers()]

    def statuses(self) -> dict[str, dict[str, Any]]:
        """Each peer's state, for people; addresses without a name stand for themselves."""
        return {name: asdict(status) for name, status in self._statuses.items()}

    def principal(self, name: str) -> str | None:
        """Whom a peer must prove to be; None where its address is all that is known of it."""
        tables = (table for table in self._config.peers if table.name == name)
        identity = next((table.identity for table in tables), None)
        return None if identity is None else f"noise:{identity}"

    def _dialers(self) -> Sequence[TcpDialer]:
        """Those that were ever needed: most nodes dial one kind of peer, or none."""
        return [one for name in ("_noise", "_ockam") if (one := vars(self).get(name)) is not None]

    @cached_property
    def _noise(self) -> TcpDialer:
        limits = noise_limits(self._config.noise, self._config.dialling.links_max)
        return self._dialer("noise", limits)

    @cached_property
    def _ockam(self) -> TcpDialer:
        table = self._config.dialling
        limits = replace(
            OCKAM_LIMITS,
            unused_close_seconds=table.unused_close_seconds,
            connections_max=table.links_max,
        )
        return self._dialer("ockam", limits)

    def _dialer(self, name: str, limits: LinkLimits) -> TcpDialer:
        return TcpDialer(
            transport_name=name,
            clock=self._clock,
            limits=limits,
            connect_seconds=self._config.dialling.connect_seconds_max,
        )

    def _add_configured(self, table: PeerTable) -> None:
        identity = table.identity
        if identity is None:
            dialer, prefix, speaks = self._ockam, b"TCP_C_", f"ockam/{table.dialect}"
            make_codec: Callable[[], LinkCodec] = partial(dialling_codec, table.dialect)
        else:
            dialer, prefix, speaks = self._noise, b"NX_C_", "noise"
            make_codec = partial(self._noise_codec, identity)
        settings = PeerSettings(
            name=table.name,
            prefix=prefix,
            dial=_dialling(dialer, table.address, make_codec),
            kept=identity is not None,
            may_dial=self._may_dial,
        )
        own_address = ADDRESS_PREFIX + table.name.encode()
        self._add(own_address, table.address, settings, speaks, _permission(table, self._access))

    def _may_dial(self) -> bool:
        return not self._stopped

    def _noise_codec(self, node_identity: str) -> NoiseLink:
        return NoiseLink.initiator(
            self._identity,
            node_identity=node_identity,
            ephemeral=self._context.entropy(DH_BYTES),
        )

    def _admits(self, address: bytes, origin: Origin) -> bool:
        may_use = self._may_use.get(address)
        return may_use is None or may_use(origin.principal)

    def _resolve(self, value: bytes, origin: Origin) -> Cell | None:
        """The peer at a TCP address; a new one where the origin administers.

        Raises:
            ActorError: as `PeerDirectory.reach`.
        """
        address = tcp_address(value)
        if address is None:
            return None
        own_address = self._at.get(address)
        if own_address is not None:
            return self._directory.reach(own_address) if self._admits(own_address, origin) else None
        if (
            self._stopped
            or len(self._at) >= self._config.dialling.links_max
            or not self._access.administers(origin.principal)
        ):
            return None
        own_address = ADDRESS_PREFIX + str(address).encode()  # no name has a colon
        settings = PeerSettings(
            name=str(address),
            prefix=b"TCP_C_",
            dial=_dialling(self._ockam, address, partial(dialling_codec, "u16")),
            kept=False,
            may_dial=self._may_dial,
            on_end=partial(self._forget, address),
        )
        self._add(own_address, address, settings, "ockam/u16", self._access.administers)
        return self._directory.reach(own_address)

    def _add(
        self,
        own_address: bytes,
        address: ListenAddress,
        settings: PeerSettings,
        speaks: str,
        may_use: MayUse,
    ) -> None:
        status = self._statuses[settings.name] = PeerStatus(str(address), speaks)
        self._at[address] = own_address
        self._may_use[own_address] = may_use
        self._directory.add(own_address, settings, status)

    def _forget(self, address: ListenAddress) -> None:
        own_address = self._at.pop(address)
        del self._may_use[own_address], self._statuses[str(address)]
        self._directory.remove(own_address)


def _dialling(
    dialer: TcpDialer, address: ListenAddress, make_codec: Callable[[], LinkCodec]
) -> Dialer:
    return lambda events, on_failure: dialer.dial(*address, make_codec(), events, on_failure)


def _permission(table: PeerTable, access: Access) -> MayUse:
    """Whether a principal may send to a peer."""
    who = table.who if table.who is not None else ("*",) if table.ockam else ()
    patterns = [re.compile(translate(one)) for one in who]

    def may_use(principal: str) -> bool:
        return any(one.match(principal) for one in patterns) or access.administers(principal)

    return may_use


def tcp_address(value: bytes) -> ListenAddress | None:
    """Read the value of a TCP address, `host:port`; None where nothing can be dialled there."""
    try:
        address = parse_address(value.decode("ascii"))
    except ValueError:
        return None
    if address.port == 0 or not _HOST.fullmatch(address.host):
        return None
    return ListenAddress(address.host.lower(), address.port)
