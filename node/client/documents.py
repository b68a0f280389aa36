"""Asks a node what it answers with a JSON document."""

from typing import Any, TypeVar

import msgspec

from rillnode.codecs import native
from rillnode.codecs.errors import RequestError
from rillnode.node.client.session import Session

T = TypeVar("T")


class ConsoleTicket(msgspec.Struct, frozen=True):
    """A ticket to a node's page, which makes who has it act there as who has asked for it.

    Attributes:
        ticket: what the page exchanges, once.
        address: where the node serves the page, as `host:port`.
        tls: whether over TLS.
        seconds: for how long it is good.
    """

    ticket: str
    address: str
    tls: bool
    seconds: float


class _Checkpoint(msgspec.Struct):
    path: str


async def node_status(session: Session) -> dict[str, Any]:
    """The node's status document."""
    request = native.StatusRequest(session.next_id())
    return await _document(session, b"node", request, dict[str, Any])


async def console_ticket(session: Session) -> ConsoleTicket:
    """A ticket to the node's page; raises RequestError."""
    request = native.ConsoleRequest(session.next_id())
    return await _document(session, b"node", request, ConsoleTicket)


async def make_checkpoint(session: Session) -> str:
    """Have the node copy its store beside itself; return where on the node's machine.

    Raises:
        RequestError: `backup.unsupported`, its store cannot; or the disk is full.
    """
    request = native.CheckpointRequest(session.next_id())
    return (await _document(session, b"backup", request, _Checkpoint)).path


async def _document(session: Session, address: bytes, request: native.Request, kind: type[T]) -> T:
    response = await session.request(address, request)
    try:
        if isinstance(response, native.DocumentResponse):
            return msgspec.json.decode(response.document, type=kind)
    except msgspec.MsgspecError:
        pass
    raise RequestError("client.answer", "the node gave another kind of answer")
