"""A service of a client against what any node may say to it."""

import asyncio
from collections.abc import Awaitable, Callable

import pytest

from coroutines import handed_by
from rillnode import Message
from rillnode.codecs import native
from rillnode.codecs.errors import RequestError
from rillnode.codecs.routing.routes import Route, WireMessage, decode_message, local, parse_route
from rillnode.node.client import serving
from rillnode.node.client.messages import Messages
from rillnode.node.client.serving import Service

CONTROL: Route = (local("SRV_00"),)
CALLS_MAX = 2


class Hub:
    """Stands where the node is: what the client has sent, and what is said to it."""

    def __init__(self) -> None:
        self.sent: list[WireMessage] = []
        self.go = asyncio.Event()
        self.messages = Messages(send=self._send, settled=lambda: None)
        self.service = Service(
            self.messages, "printer", self._work,
            at=(), group=False, calls_max=CALLS_MAX, lease_seconds=10.0,
        )  # fmt: skip
        self.handled: list[bytes] = []

    def _send(self, frame: bytes, needs_link: bool) -> None:
        self.sent.append(decode_message(frame))

    async def _work(self, message: Message) -> bytes:
        await self.go.wait()
        self.handled.append(message.payload)
        return b"printed " + message.payload

    def requests(self) -> list[tuple[Route, native.Request]]:
        """What has been sent since the last look."""
        sent, self.sent = self.sent, []
        return [(wire.onward_route, native.decode_request(wire.payload)) for wire in sent]

    def say(self, response: native.Response | bytes, route: Route = CONTROL) -> None:
        payload = response if isinstance(response, bytes) else native.encode(response)
        own = self.service._own  # pyright: ignore[reportPrivateUsage]
        self.messages.received(WireMessage((local(own),), route, payload))

    def call(self, *numbers: int, service: int = 1, route: Route = CONTROL) -> None:
        calls = [native.Call(number, "noise:aa", [], [], b"%d" % number) for number in numbers]
        self.say(native.CallsResponse(service, calls), route)

    async def begun(self) -> None:
        beginning = asyncio.ensure_future(self.service.begin())
        await settle()
        ((route, request),) = self.requests()
        assert route == parse_route("serve")
        assert isinstance(request, native.ServeRequest)
        assert (request.request_id, request.address, request.calls_max) == (1, b"printer", 2)
        self.say(native.DoneResponse(1))
        await beginning

    def answers(self) -> list[tuple[Route, int, bytes | None, str]]:
        return [
            (route, one.call_id, one.payload, one.code)
            for route, one in self.requests()
            if isinstance(one, native.AnswerRequest)
        ]


async def settle() -> None:
    for _ in range(10):
        await asyncio.sleep(0)


def with_hub(test: Callable[[Hub], Awaitable[None]]) -> None:
    async def main() -> None:
        async with asyncio.timeout(30.0):
            await test(Hub())

    asyncio.run(main())


hub = handed_by(with_hub)


async def test_an_answer_goes_to_where_its_call_came_from(hub: Hub) -> None:
    """The number of a call means nothing to whoever has the address after that."""
    await hub.begun()
    hub.call(1)
    later = (local("SRV_11"),)
    hub.say(native.DoneResponse(1), later)
    hub.call(1, route=later)
    hub.go.set()
    await settle()
    assert hub.answers() == [(CONTROL, 1, b"printed 1", ""), (later, 1, b"printed 1", "")]


async def test_what_came_over_a_link_that_is_gone_is_not_answered(hub: Hub) -> None:
    await hub.begun()
    hub.call(1, 2, 3)
    await settle()
    hub.messages.link_opened()
    ((_, request),) = hub.requests()
    assert isinstance(request, native.ServeRequest)
    hub.call(4)
    hub.go.set()
    await settle()
    # What was begun ends, what waited is not begun.
    assert hub.handled == [b"1", b"2", b"4"]
    assert [number for _, number, _, _ in hub.answers()] == [4]


async def test_a_node_that_sends_too_much_is_not_kept_up_with(hub: Hub) -> None:
    await hub.begun()
    for number in range(100):
        hub.call(number)
    assert hub.service.open_calls <= 2 * CALLS_MAX
    hub.go.set()
    await settle()
    assert len(hub.answers()) == 2 * CALLS_MAX


async def test_what_nobody_has_asked_for_changes_nothing(hub: Hub) -> None:
    await hub.begun()
    for said in (b"", b"garbage", native.Failure(7, "address.taken", "no")):
        hub.say(said)
    hub.say(native.Failure(0, "address.unknown", "no"))
    hub.call(1, service=7)
    hub.call(2)
    hub.go.set()
    await settle()
    assert [number for _, number, _, _ in hub.answers()] == [2]


@pytest.mark.parametrize("code", ["actor.busy", "actor.failed", "actor.stopped", "node.draining"])
def test_what_passes_is_waited_for(code: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(serving, "AGAIN_SECONDS", 0.01)

    async def test(hub: Hub) -> None:
        await hub.begun()
        hub.call(1)
        await settle()
        hub.say(native.Failure(1, code, "not now", True))
        while not (asked := hub.requests()):
            await asyncio.sleep(0.005)
        ((_, request),) = asked
        assert isinstance(request, native.ServeRequest)
        assert request.request_id == 2
        hub.say(native.DoneResponse(2))
        hub.go.set()
        await settle()
        assert hub.answers() == []  # whoever waited for it was told
        hub.call(2, service=2)
        await settle()
        assert [number for _, number, _, _ in hub.answers()] == [2]

    with_hub(test)


@pytest.mark.parametrize("code", ["address.taken", "serve.revoked", "address.unknown"])
async def test_what_does_not_pass_ends_it(hub: Hub, code: str) -> None:
    await hub.begun()
    hub.say(native.Failure(1, code, "for good"))
    with pytest.raises(RequestError, match="for good") as caught:
        await hub.service.wait()
    assert caught.value.code == code
    hub.messages.link_opened()
    assert hub.requests() == []


async def test_an_address_that_comes_too_late_is_given_back(hub: Hub) -> None:
    beginning = asyncio.ensure_future(hub.service.begin())
    await settle()
    beginning.cancel()
    await asyncio.wait((beginning,))
    hub.requests()
    hub.say(native.DoneResponse(1))
    token = hub.service._token  # pyright: ignore[reportPrivateUsage]
    assert hub.requests() == [(CONTROL, native.StopServingRequest(0, token))]
    hub.say(native.DoneResponse(1))
    assert hub.requests() == []
