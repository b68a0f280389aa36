"""A client's session, and the other end of its link in the test's own hands."""

import asyncio
from collections.abc import Awaitable, Callable

from link_support import ManualClock
from rillnode.codecs import native
from rillnode.codecs.routing.routes import WireMessage, decode_message, encode_message
from rillnode.node.client.session import Session
from rillnode.transports.links import Link, LinkEvents
from rillnode.transports.memory import connect_memory


class FarLink:
    """The far end of a client's links, in memory; a subclass says what becomes of messages."""

    def __init__(self) -> None:
        self.links: list[Link] = []

    async def connect(self, events: LinkEvents) -> object:
        """Open a link from a session to here."""
        return connect_memory(
            events,
            self,
            dialling_principal="client",
            accepting_principal="node",
            post=asyncio.get_running_loop().call_soon,
            clock=ManualClock(),
        )

    def link_opened(self, link: Link) -> None:
        self.links.append(link)

    def messages_received(self, messages: list[bytes]) -> None:
        for message in map(decode_message, messages):
            self.received(message)

    def received(self, message: WireMessage) -> None:
        """Take one message."""
        raise NotImplementedError

    def send(self, message: WireMessage) -> None:
        """Send one over the newest link."""
        self.links[-1].send([encode_message(*message)])

    def link_drained(self) -> None: ...

    def link_closed(self, reason: str) -> None: ...


class FarEnd(FarLink):
    """A node's end of the link: notes requests, and answers when it is told to."""

    def __init__(self) -> None:
        super().__init__()
        self.requests: list[native.Request] = []
        self._back: dict[int, WireMessage] = {}

    def received(self, message: WireMessage) -> None:
        request = native.decode_request(message.payload)
        self.requests.append(request)
        self._back[request.request_id] = message

    def ids(self) -> list[int]:
        """The requests that have come, which are forgotten then."""
        found = [request.request_id for request in self.requests]
        self.requests.clear()
        return found

    def answer(self, response: native.Response) -> None:
        route = self._back[response.request_id].return_route
        self.send(WireMessage(route, (), native.encode(response)))

    def refuse(self, *ids: int, code: str = "actor.busy", milliseconds: int = 1) -> None:
        for one in ids:
            self.answer(native.Failure(one, code, "why not", True, milliseconds))

    def store(self, *ids: int) -> None:
        for one in ids:
            self.answer(native.PositionResponse(one, 100 + one))


def with_session(
    test: Callable[[Session, FarEnd], Awaitable[None]], *, reconnect: bool = True
) -> None:
    async def main() -> None:
        far = FarEnd()
        session = Session(far.connect, reconnect=reconnect)
        await session.open()
        async with asyncio.timeout(60):
            await test(session, far)
            await session.close(timeout_seconds=0.01)

    asyncio.run(main())
