"""What a transport knows of a link: shared by those that make links and those that use them."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class LinkInfo:
    """What is known of a link when it opens.

    Attributes:
        principal: who the peer has proved to be (`noise:<hex>`), or `anonymous`.
        remote: the peer's transport address, for people and logs.
        transport: `noise`, `ockam` or `memory`.
        dialled: whether this side opened it.
        message_bytes_max: largest wire message that the peer takes.
    """

    principal: str
    remote: str
    transport: str
    dialled: bool
    message_bytes_max: int
