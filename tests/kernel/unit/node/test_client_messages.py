"""Messages of a client along routes: who gets what comes back, and when nothing does."""

import asyncio
import gc
from collections.abc import Awaitable, Callable

import pytest

from coroutines import handed_by, run_with
from far_end import FarLink
from rillnode.codecs import native
from rillnode.codecs.errors import ActorError, CodecError, RequestError, TransportError
from rillnode.codecs.limits import FRAME_BYTES_MAX, ROUTE_HOPS_MAX
from rillnode.codecs.routing.routes import (
    Route,
    WireMessage,
    local,
    parse_route,
)
from rillnode.node.client import Answer, Client, Mailbox
from rillnode.node.client.session import Session

PING = b"\x00"


class FarEnd(FarLink):
    """A node's end of the link: notes messages, and answers as it is told."""

    def __init__(self) -> None:
        super().__init__()
        self.messages: list[WireMessage] = []
        self.answer: Callable[[WireMessage], list[WireMessage]] = lambda message: []

    def received(self, message: WireMessage) -> None:
        self.messages.append(message)
        for answer in self.answer(message):
            self.send(answer)


def with_client(
    test: Callable[[Client, Session, FarEnd], Awaitable[None]], *, reconnect: bool = True
) -> None:
    async def main() -> None:
        far = FarEnd()
        session = Session(far.connect, reconnect=reconnect)
        await session.open()
        async with asyncio.timeout(60):
            await test(Client(session), session, far)
            await session.close(timeout_seconds=0.01)

    asyncio.run(main())


client = handed_by(with_client)
session = handed_by(with_client, 1)
far = handed_by(with_client, 2)


def echo(message: WireMessage) -> list[WireMessage]:
    return [WireMessage(message.return_route, (local("echo"),), message.payload)]


def failing(code: str) -> Callable[[WireMessage], list[WireMessage]]:
    def answer(message: WireMessage) -> list[WireMessage]:
        failure = native.encode(native.Failure(0, code, "why not"))
        return [WireMessage(message.return_route, (), failure)]

    return answer


async def test_answers_find_their_questions(client: Client, session: Session, far: FarEnd) -> None:
    far.answer = echo
    payloads = [b"%d" % number for number in range(50)]
    answers = await asyncio.gather(*[client.ask("a;b", payload) for payload in payloads])
    assert answers == [Answer((local("echo"),), payload) for payload in payloads]
    assert {message.onward_route for message in far.messages} == {parse_route("a;b")}
    returns = {message.return_route for message in far.messages}
    assert len(returns) == 50  # an address of its own for each
    assert all(len(route) == 1 and len(route[0].value) == 16 for route in returns)


async def test_only_the_first_answer_counts_and_strangers_do_not(
    client: Client, session: Session, far: FarEnd
) -> None:
    def answer(message: WireMessage) -> list[WireMessage]:
        strange: list[Route] = [(), (local("c"),), (local("0" * 16),)]
        others = [WireMessage(route, (), b"not for you") for route in strange]
        return [*others, *echo(message), *echo(message._replace(payload=b"late"))]

    far.answer = answer
    for _ in range(2):
        assert (await client.ask("a", b"x")).payload == b"x"


async def test_nothing_but_the_node_answers_its_requests(
    client: Client, session: Session, far: FarEnd
) -> None:
    """Who is sent a message learns an address for its answer, and of no other."""
    far.answer = echo
    await client.ask("a", b"x")
    (asked,) = far.messages
    far.answer = lambda _: [
        WireMessage(asked.return_route, (), native.encode(native.DocumentResponse(1, b'{"a": 1}')))
    ]
    status = asyncio.ensure_future(client.status())
    while len(far.messages) < 2:
        await asyncio.sleep(0.001)
    await asyncio.sleep(0.05)
    assert not status.done()
    request = far.messages[-1]
    assert request.return_route != asked.return_route
    document = native.encode(native.DocumentResponse(1, b"{}"))
    far.send(WireMessage(request.return_route, (), document))
    assert await status == {}


async def test_a_node_that_cannot_hand_on_is_heard(
    client: Client, session: Session, far: FarEnd
) -> None:
    far.answer = failing("peer.unreachable")
    with pytest.raises(RequestError, match="why not") as caught:
        await client.ask("a", b"x")
    assert caught.value.code == "peer.unreachable"
    # Other answers of those protocols are the caller's business.
    document = native.encode(native.DocumentResponse(1, b"{}"))
    far.answer = lambda message: [WireMessage(message.return_route, (), document)]
    assert (await client.ask("a", b"x")).payload == document
    far.answer = lambda message: [WireMessage(message.return_route, (), b"\x10rillnode_failure")]
    assert (await client.ask("a", b"x")).payload == b"\x10rillnode_failure"


async def test_no_answer_in_time_is_an_error(client: Client, session: Session, far: FarEnd) -> None:
    with pytest.raises(ActorError, match=r"nothing has come back in 0\.01 s"):
        await client.ask("a", b"x", timeout_seconds=0.01)
    assert not session.messages
    await session.close(timeout_seconds=30.0)  # waits for nothing


async def test_a_question_survives_a_lost_link(
    client: Client, session: Session, far: FarEnd
) -> None:
    question = asyncio.ensure_future(client.ask("a", b"x", timeout_seconds=30.0))
    while not far.messages:
        await asyncio.sleep(0.001)
    far.answer = echo
    far.links[0].close("cut")
    assert (await question).payload == b"x"
    assert len(far.messages) == 2


@run_with(reconnect=False)
async def test_without_a_link_nothing_is_sent(
    client: Client, session: Session, far: FarEnd
) -> None:
    question = asyncio.ensure_future(client.ask("a", b"x", timeout_seconds=30.0))
    while not far.messages:
        await asyncio.sleep(0.001)
    far.links[0].close("cut")
    with pytest.raises(TransportError) as caught:
        await question
    assert caught.value.code == "link.closed"
    for sending in (client.send("a", b"x"), client.ask("a", b"x")):
        with pytest.raises(TransportError):
            await sending
    assert not session.messages


async def test_what_is_sent_may_name_where_answers_go(
    client: Client, session: Session, far: FarEnd
) -> None:
    far.answer = echo
    came: list[WireMessage] = []
    address = session.messages.attach(came.append)
    for payload in (b"1", b"2"):
        await client.send(parse_route("a"), payload, return_address=address)
    await client.ask("a", b"after these")
    assert [message.payload for message in came] == [b"1", b"2"]
    session.messages.detach(address)
    await client.send("a", b"3", return_address=address)
    await client.send("a", b"4")
    await client.ask("a", b"after these")
    assert len(came) == 2
    assert far.messages[-2].return_route == ()


async def test_what_cannot_be_sent_is_refused_at_once(
    client: Client, session: Session, far: FarEnd
) -> None:
    for payload in (bytes(FRAME_BYTES_MAX), bytes(FRAME_BYTES_MAX - 1)):
        with pytest.raises(RequestError, match="at most 4,194,304 bytes") as caught:
            await client.ask("a", payload)
        assert caught.value.code == "message.size"
    with pytest.raises(RequestError, match="more than 64 hops"):
        await client.send((local("a"),) * (ROUTE_HOPS_MAX + 1), b"x")
    with pytest.raises(CodecError):
        await client.send("a;;b", b"x")
    assert (far.messages, bool(session.messages)) == ([], False)


def is_ping(message: WireMessage) -> bool:
    return (message.onward_route, message.payload) == (parse_route("peer/core"), PING)


@pytest.mark.parametrize(("pings", "echoes"), [(True, False), (False, True), (True, True)])
async def test_a_peer_answers_a_ping_in_one_of_two_ways(
    client: Client, session: Session, far: FarEnd, pings: bool, echoes: bool
) -> None:
    def answer(message: WireMessage) -> list[WireMessage]:
        return echo(message) if (pings if is_ping(message) else echoes) else []

    far.answer = answer
    assert await client.ping("core", timeout_seconds=30.0) >= 0
    assert not session.messages


async def test_a_ping_without_answer_fails(client: Client, session: Session, far: FarEnd) -> None:
    refuse = failing("address.unknown")

    def no_echo(message: WireMessage) -> list[WireMessage]:
        return [] if is_ping(message) else refuse(message)

    far.answer = no_echo
    with pytest.raises(ActorError, match="nothing has come back"):
        await client.ping("core", timeout_seconds=0.05)
    for code in ("address.unknown", "peer.unreachable"):
        far.answer = failing(code)
        with pytest.raises(RequestError) as caught:
            await client.ping("core", timeout_seconds=30.0)
        assert caught.value.code == code
    assert not session.messages


# Mailboxes ---------------------------------------------------------------------------------------


def to(box: Mailbox, payload: bytes) -> WireMessage:
    return WireMessage((local(box.address),), (local("worker"),), payload)


async def arrived(client: Client, far: FarEnd) -> None:
    """Wait until all that was sent before has come."""
    far.answer = echo
    await client.ask("after", b"these")


async def test_a_mailbox_brings_what_comes_unasked(
    client: Client, session: Session, far: FarEnd
) -> None:
    async with client.mailbox() as box:
        far.answer = lambda message: [*echo(message), *echo(message)]
        await client.send("a", b"x", return_address=box.address)
        answers = [await anext(box), await anext(box)]
        assert answers == [Answer((local("echo"),), b"x")] * 2
        # One who has waited in vain loses nothing.
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(anext(box), 0.01)
        far.send(to(box, b"later"))
        assert await anext(box) == Answer((local("worker"),), b"later")
    far.send(to(box, b"too late"))
    await arrived(client, far)
    with pytest.raises(StopAsyncIteration):
        await anext(box)


async def test_a_full_mailbox_counts_and_tells_what_it_drops(
    client: Client, session: Session, far: FarEnd, caplog: pytest.LogCaptureFixture
) -> None:
    box = client.mailbox(messages_max=2)
    for number in range(5):
        far.send(to(box, b"%d" % number))
    await arrived(client, far)
    assert box.dropped == 3
    assert [record.msg for record in caplog.records] == ["mailbox_full"]
    assert [(await anext(box)).payload for _ in range(2)] == [b"0", b"1"]
    far.send(to(box, b"5"))
    assert (await anext(box)).payload == b"5"
    assert box.dropped == 3


async def test_a_mailbox_is_bounded_by_bytes_too(
    client: Client, session: Session, far: FarEnd
) -> None:
    box = client.mailbox()
    for _ in range(6):
        far.send(to(box, bytes(4_000_000)))
    await arrived(client, far)
    assert box.dropped == 2


async def test_a_mailbox_lasts_over_lost_links_and_ends_with_its_client(
    client: Client, session: Session, far: FarEnd
) -> None:
    box = client.mailbox()
    far.links[0].close("cut")
    await arrived(client, far)
    far.send(to(box, b"over the second"))
    await arrived(client, far)
    await client.close()
    assert (await anext(box)).payload == b"over the second"
    for _ in range(2):
        with pytest.raises(TransportError) as caught:
            await anext(box)
        assert caught.value.code == "client.closed"


async def test_a_dropped_mailbox_gives_its_address_back(
    client: Client, session: Session, far: FarEnd
) -> None:
    box = client.mailbox()
    address = box.address
    assert address in session.messages._receivers  # pyright: ignore[reportPrivateUsage]
    del box
    gc.collect()
    await arrived(client, far)
    await asyncio.sleep(0)
    assert address not in session.messages._receivers  # pyright: ignore[reportPrivateUsage]
