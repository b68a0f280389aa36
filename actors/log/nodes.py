"""Lets nodes with the same logs tell each other where they are, and what they serve."""

from typing import Final

import msgspec

NODES: Final = "nodes/"
"""Begins the names of the values that nodes are told of by; the rest is the node's identity."""


class NodeRecord(msgspec.Struct, frozen=True, kw_only=True):
    """A node's record about itself.

    Attributes:
        name: for people.
        identity: its Ed25519 key in hex, which it proves on its links.
        address: `host:port` where clients reach its links; "" where they cannot.
        serve: what it holds, as its configuration says it.
        told_at: when it has said so last, in ms since 1970 by its own clock.
        reads: the newest version of frames that it reads.
    """

    name: str
    identity: str
    address: str
    serve: tuple[str, ...] = ()
    told_at: int = 0
    reads: int = 1

    @property
    def key(self) -> str:
        """The name of the value."""
        return NODES + self.identity

    def encode(self) -> bytes:
        """The value."""
        return msgspec.json.encode(self)

    @classmethod
    def decode(cls, value: bytes) -> "NodeRecord | None":
        """Read a value; None where it is of a form that this version does not know."""
        try:
            return msgspec.json.decode(value, type=cls)
        except (msgspec.MsgspecError, ValueError, RecursionError):
            return None
