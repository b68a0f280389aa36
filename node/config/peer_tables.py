"""The tables of `node.toml` about links that the node opens."""

from typing import Annotated

from msgspec import Meta, Struct

from rillnode.codecs.limits import CONNECT_SECONDS_MAX, DIALLED_LINKS_MAX, UNUSED_CLOSE_SECONDS
from rillnode.codecs.routing.dialects import Dialect
from rillnode.node.config.address import ListenAddress, parse_address
from rillnode.node.config.kinds import Count, HostPort, KeysHex, Name, Seconds


class PeerTable(Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """Another node, reached by routes that begin with `peer/<name>` or with its TCP address.

    It has either `noise` and `identity`, or `ockam`.

    Attributes:
        name: Its name at this node.
        noise: Address and port of its `noise` listener; a link to it is kept open.
        identity: Its public Ed25519 key, with `noise`; during a rotation the old and the new one,
            separated by a comma.
        ockam: Address and port of its Ockam TCP listener; dialled when there is something to send.
        dialect: Its dialect of Ockam TCP: `u16` until 2024-05, `2024` since.
        who: Principals that may send to it besides admins, as in a grant. Default: everybody for
            `ockam`; nobody for `noise`, where all messages count as this node's own.
    """

    name: Annotated[Name, Meta(examples=["core"])]
    noise: Annotated[HostPort | None, Meta(examples=["core.example.org:4100"])] = None
    identity: Annotated[KeysHex | None, Meta(examples=["00" * 32])] = None
    ockam: Annotated[HostPort | None, Meta(examples=["hub.example.org:4000"])] = None
    dialect: Dialect = "u16"
    who: Annotated[
        tuple[Name, ...] | None,
        Meta(title="a list of principals", examples=[["noise:" + "00" * 32]]),
    ] = None

    @property
    def address(self) -> ListenAddress:
        """The address to dial, taken apart; names of hosts are the same in any case."""
        address = parse_address(self.noise or self.ockam or "")
        return ListenAddress(address.host.lower(), address.port)


class DiallingTable(Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """Links that the node opens: to peers, and to addresses that routes of administrators name.

    Attributes:
        links_max: Links open or being opened at one time.
        connect_seconds_max: Time that connecting may take.
        unused_close_seconds: Links over Ockam TCP are closed after this time without a message.
    """

    links_max: Count = DIALLED_LINKS_MAX
    connect_seconds_max: Seconds = CONNECT_SECONDS_MAX
    unused_close_seconds: Seconds = UNUSED_CLOSE_SECONDS
