"""An Ockam node of 2021 in memory, at the other end of a client's link."""

import asyncio
from collections.abc import Awaitable, Callable, Coroutine
from typing import Any

import pytest

from link_support import ManualClock
from rillnode.codecs.errors import RillnodeError
from rillnode.codecs.routing.routes import Route, WireMessage, decode_message, encode_message, local
from rillnode.codecs.routing.stream import (
    CreatePartitionedRequest,
    CreatePartitionedResponse,
    CreateRequest,
    CreateResponse,
    ErrorResponse,
    GetIndexRequest,
    GetPartitionIndexRequest,
    IndexResponse,
    PartitionIndexResponse,
    PullRequest,
    PullResponse,
    PushConfirm,
    PushRequest,
    Request,
    Response,
    SaveIndexRequest,
    SavePartitionIndexRequest,
    Status,
    decode_request,
    encode_response,
)
from rillnode.node.client import Client
from rillnode.node.client.session import Session
from rillnode.transports.links import Link, LinkEvents
from rillnode.transports.memory import connect_memory

Answers = list[tuple[bytes, Response | bytes]]
"""What is answered, each from an address."""

Talk = Callable[["FakeHub", Client], Awaitable[None]]
WAIT_SECONDS = 60.0
SOON: Any = {"answer_seconds": 0.05}
"""For answers that do not come: what is lost is asked again soon."""
ONCE: Any = {"answer_seconds": 0.05, "patience_seconds": 0.0}


class FakeHub:
    """Streams at addresses that tell nothing, kept until `forget`; saves have no answer.

    Attributes:
        requests: what has come, in order.
        services: its addresses of the stream and the index service.
        answers: what it answers in the place of what is right; None: what is right.
    """

    def __init__(self, services: tuple[str, str] = ("stream", "stream_index")) -> None:
        self.requests: list[Request] = []
        self.services = services
        self.answers: Callable[[Request], Answers | None] = lambda request: None
        self.logs: dict[bytes, list[bytes]] = {}
        self.indexes: dict[tuple[str, str], int] = {}
        self.links: list[Link] = []
        self._addresses: dict[tuple[str, int], bytes] = {}
        self._made = 0

    async def client(self) -> Client:
        """A client whose next node is this one."""
        session = Session(self._connect)
        await session.open()
        return Client(session)

    def log(self, name: str, partition: int = 0) -> list[bytes]:
        """The entries of a stream."""
        return self.logs[self._address(name, partition)]

    def forget(self) -> None:
        """Restart: everything in memory is lost."""
        self.logs.clear()
        self.indexes.clear()
        self._addresses.clear()

    def count(self, kind: type) -> int:
        """How many requests of a kind have come."""
        return sum(isinstance(request, kind) for request in self.requests)

    # The link.

    async def _connect(self, events: LinkEvents) -> object:
        return connect_memory(
            events,
            self,
            dialling_principal="client",
            accepting_principal="hub",
            post=asyncio.get_running_loop().call_soon,
            clock=ManualClock(),
        )

    def link_opened(self, link: Link) -> None:
        self.links.append(link)

    def messages_received(self, messages: list[bytes]) -> None:
        for wire in map(decode_message, messages):
            address = wire.onward_route[0].value
            if address in self.logs or address.decode() in self.services:
                request = decode_request(wire.payload)
                self.requests.append(request)
                answers = self.answers(request)
                self._send(
                    wire.return_route, self._right(address, request) if answers is None else answers
                )

    def link_drained(self) -> None: ...

    def link_closed(self, reason: str) -> None: ...

    def _send(self, route: Route, answers: Answers) -> None:
        for address, answer in answers:
            payload = answer if isinstance(answer, bytes) else encode_response(answer)
            message = WireMessage(route, (local(address),), payload)
            self.links[-1].send([encode_message(*message)])

    # The services.

    def _right(self, address: bytes, request: Request) -> Answers:
        log = self.logs.get(address, [])
        match request:
            case CreateRequest(stream_name=name):
                name = name or "generated_1"
                return [(self._address(name, 0), CreateResponse(name))]
            case CreatePartitionedRequest(stream_name=name, partitions=partitions):
                name = name or "generated_1"
                return [
                    (self._address(name, number), CreatePartitionedResponse(name, number))
                    for number in reversed(range(partitions))
                ]
            case PushRequest(request_id=request_id, data=data):
                log.append(data)
                return [(address, PushConfirm(request_id, Status.OK, len(log) - 1))]
            case PullRequest(request_id=request_id, index=index, limit=limit):
                found = list(enumerate(log))[index : index + limit]
                return [(address, PullResponse(request_id, found))]
            case GetIndexRequest(client_id=client, stream_name=name):
                held = self.indexes.get((client, name))
                return [(address, IndexResponse(client, name, held))]
            case GetPartitionIndexRequest(client_id=client, stream_name=name, partition=partition):
                held = self.indexes.get((client, name))
                return [(address, PartitionIndexResponse(client, name, partition, held))]
            case SaveIndexRequest() | SavePartitionIndexRequest():
                key = (request.client_id, request.stream_name)
                self.indexes[key] = max(request.index, self.indexes.get(key, 0))
                return []
            case _:
                return [(address, ErrorResponse("Invalid request"))]

    def _address(self, name: str, partition: int) -> bytes:
        address = self._addresses.get((name, partition))
        if address is None:
            self._made += 1
            address = self._addresses[name, partition] = b"%016x" % self._made
            self.logs[address] = []
        return address


def with_hub(talk: Talk, hub: FakeHub | None = None) -> None:
    """Let a client talk to a hub."""

    async def run() -> None:
        there = hub or FakeHub()
        async with asyncio.timeout(WAIT_SECONDS), await there.client() as client:
            await talk(there, client)

    asyncio.run(run())


def from_(*responses: Response) -> Answers:
    """Answers that all come from one address."""
    return [(b"s", response) for response in responses]


async def refusal(asked: Coroutine[Any, Any, object]) -> str:
    """The code of the error that a question ends with."""
    with pytest.raises(RillnodeError) as caught:
        await asked
    return caught.value.code
