"""Describes links: the facts shared by those that make links and those that use them."""

from dataclasses import dataclass
from typing import Literal, Protocol

WireFormat = Literal["bare", "cbor"]
"""How the wire messages of a link are written: in BARE, or in CBOR as Ockam's nodes since 2024."""


class Claim(Protocol):
    """A peer's claim of who it is, where its protocol proves nothing."""

    @property
    def principal(self) -> str:
        """How grants call it."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class LinkInfo:
    """The facts known of a link when it opens.

    Attributes:
        principal: who the peer has proved to be (`noise:<hex>`), or `anonymous`.
        remote: the peer's transport address, for people and logs.
        transport: `noise`, `ockam` or `memory`.
        dialled: whether this side opened it.
        message_bytes_max: largest wire message that the peer takes; of a WebSocket, that this side
            takes.
        wire_format: what its frames hold.
        claim: who a peer says that it is, where its protocol proves nothing.
    """

    principal: str
    remote: str
    transport: str
    dialled: bool
    message_bytes_max: int
    wire_format: WireFormat = "bare"
    claim: Claim | None = None
