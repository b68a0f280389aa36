"""Shares parts among the overlay's actors of one node."""

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Final, Protocol

from rillnode.actors.core.access import NODE_PRINCIPAL, Access, Verb
from rillnode.actors.core.delivery import Origin
from rillnode.actors.core.streams.context import StreamContext
from rillnode.actors.overlay.dialect import Dialect
from rillnode.codecs.limits import FRAME_BYTES_MAX
from rillnode.codecs.routing.routes import Route
from rillnode.codecs.streamr.node_address import AnyAddress, NodeAddress, ReleasedPeer
from rillnode.codecs.texts import one_text

MEMBER_ADDRESS: Final = b"overlay"
"""Of the actor that trackers talk to."""


class NodeLinks(Protocol):
    """Links to other nodes, dialled when there is something to send; all on the loop's thread."""

    def hold(self, node: AnyAddress, /) -> Route:
        """The way to a node, for as long as it is not released as often as it was held."""
        ...

    def release(self, node: AnyAddress, /) -> None:
        """It is not needed any more."""
        ...


@dataclass(frozen=True, slots=True)
class OverlaySettings:
    """The fixed settings of a node's part.

    Attributes:
        identity: the node's, hexadecimal.
        address: where others are to dial it; known once it listens.
        storage: it keeps streams for others.
        takes_part: whether a stream is shared.
        trackers: routes to trackers, all nodes' in the same order.
        released: it can be linked to released nodes.
        told_one_end: the trackers are released ones, which tell only one end of most links.
    """

    identity: str
    address: Callable[[], NodeAddress]
    storage: bool
    takes_part: Callable[[str], bool]
    trackers: tuple[Route, ...]
    released: bool = False
    told_one_end: bool = False


@dataclass(slots=True)
class OverlayContext:
    """The node's parts that its overlay works with.

    Attributes:
        links: to other nodes.
        admitted: identities that a tracker has named, and how often.
        origin: of what the node itself sends.
        counters: what was sent, taken and refused.
        neighbours: identities of who is linked, by stream partition.
        admits: whether a node may have what is at an address: what is sent to it is refused where
            not, and nothing more is sent to the node.
    """

    streams: StreamContext
    settings: OverlaySettings
    links: NodeLinks
    admits: Callable[[bytes, Origin], bool]
    admitted: Counter[str] = field(default_factory=Counter)
    counters: Counter[str] = field(default_factory=Counter)
    neighbours: dict[str, tuple[str, ...]] = field(default_factory=dict[str, tuple[str, ...]])
    origin: Origin = field(
        default_factory=lambda: Origin(NODE_PRINCIPAL, FRAME_BYTES_MAX, native=False)
    )

    _dialect: Dialect = field(default_factory=Dialect, init=False, repr=False)

    @property
    def dialect(self) -> Dialect:
        """How this node begins to talk to another: one object for all whom it talks to."""
        source = str(self.settings.address())
        if source != self._dialect.source:
            self._dialect = Dialect(source)
        return self._dialect


def claim_of(origin: Origin) -> ReleasedPeer | None:
    """Who a released peer says that it is; None for others."""
    claim = None if origin.link is None else origin.link.info.claim
    return claim if isinstance(claim, ReleasedPeer) else None


def verbs_of(access: Access, origin: Origin, stream_id: str) -> frozenset[Verb]:
    """What a node may do: a released one what everybody may, and what its id is granted.

    It proves that id to nobody, so what it takes counts for `anonymous` as before.
    """
    verbs, claim = access.verbs(origin.principal, stream_id), claim_of(origin)
    return verbs if claim is None else verbs | access.verbs(claim.principal, stream_id)


def is_known(access: Access, origin: Origin) -> bool:
    """Whether any grant is for a node; for a released one, as `verbs_of`."""
    claim = claim_of(origin)
    return access.known(origin.principal) or (claim is not None and access.known(claim.principal))


def identity_of(origin: Origin) -> str:
    """What tells a node from others, as its address does: proved, except a released one's."""
    claim = claim_of(origin)
    return identity_in(origin.principal) if claim is None else claim.url


def name_of(origin: Origin) -> str:
    """What a node is called in statuses."""
    claim = claim_of(origin)
    return identity_in(origin.principal) if claim is None else claim.name


def identity_in(principal: str) -> str:
    """Who a principal is: its part after the kind; one text for all that hold it."""
    return one_text(principal.rpartition(":")[2])
