"""Connections: opening, what ends them and how, and that every request is answered."""

from random import Random
from typing import Any

import pytest

from nextgraph_broker import (
    INNER,
    PRIVATE,
    TOPIC_A,
    TOPIC_B,
    WRITE_ONLY,
    Broker,
    Client,
    Wire,
    identity,
    pin,
    subscribe,
)
from nextgraph_support import APP_LOGIN
from rillnode.actors.core.links.connection import Drain
from rillnode.actors.engine.system import Cell
from rillnode.actors.engine.worker import Worker
from rillnode.actors.log import Append
from rillnode.actors.nextgraph.connection import EVENTS_MAX, BrokerEvents
from rillnode.actors.nextgraph.context import Table
from rillnode.actors.nextgraph.session import Asked
from rillnode.codecs.limits import HANDSHAKE_SECONDS_MAX, STORE_PENDING_HIGH_BYTES
from rillnode.codecs.nextgraph.blocks import Block, BlockContent
from rillnode.codecs.nextgraph.broker_dialogue import PROBE_CLOSE_SECONDS
from rillnode.codecs.nextgraph.client import ClientMessage
from rillnode.codecs.nextgraph.events import sign_event
from rillnode.codecs.nextgraph.external import Blocks, ExtObjectGet, ExtRequest, ExtResponse
from rillnode.codecs.nextgraph.messages import encode_message
from rillnode.codecs.nextgraph.requests import (
    BlocksExist,
    BlocksGet,
    BlocksPut,
    CommitGet,
    ObjectDel,
    ObjectPin,
    ObjectUnpin,
    OpenRepo,
    RepoPinStatusReq,
    RequestContent,
    TopicSub,
    TopicSyncReq,
    TopicUnsub,
    UnpinRepo,
    WalletPutExport,
)
from rillnode.codecs.nextgraph.responses import ClientResponse, EmptyResponse
from rillnode.codecs.nextgraph.results import ResultCode
from rillnode.codecs.nextgraph.start import AppResponse, Probe
from rillnode.codecs.nextgraph.types import (
    NIL_OVERLAY,
    DirectPeer,
    GlobalOverlay,
    OuterOverlay,
    OverlayId,
)

ID = b"?" * 32
REQUESTS: list[RequestContent] = [
    OpenRepo(ID, WRITE_ONLY, [], 0, [], []),
    pin(access=WRITE_ONLY),
    UnpinRepo(ID),
    RepoPinStatusReq(ID),
    TopicSub(ID, ID, None),
    TopicUnsub(ID, ID),
    BlocksExist([ID]),
    BlocksGet([ID], True, ID),
    CommitGet(ID, ID),
    TopicSyncReq(ID, [ID], [ID], None),
    ObjectPin(ID),
    ObjectUnpin(ID),
    ObjectDel(ID),
    BlocksPut([Block(None, BlockContent(None, [ID], b"x"))]),
    WalletPutExport(b"w", ID, True),
]
OVERLAYS: list[OverlayId] = [PRIVATE, INNER, OuterOverlay(ID), GlobalOverlay(), NIL_OVERLAY]


@pytest.mark.parametrize("known", [False, True])
async def test_every_request_on_every_overlay_is_answered_with_a_code_that_clients_know(
    broker: Broker, known: bool
) -> None:
    client = await broker.client()
    if known:
        await client.pin(TOPIC_A, access=WRITE_ONLY)
        await client.pin(TOPIC_A)
    for overlay in OVERLAYS:
        for request in REQUESTS:
            answers = await client.ask(overlay, request)
            assert answers, (overlay, request)
            *partial, (last, _) = answers
            assert ResultCode(last) is not ResultCode.PARTIAL_CONTENT
            assert all(result == ResultCode.PARTIAL_CONTENT for result, _ in partial)
    assert client.wire.closed is None


async def test_requests_that_come_at_once_are_answered_in_their_order(broker: Broker) -> None:
    client = await broker.client()
    for overlay in (INNER, PRIVATE) * 20:
        client.post(overlay, RepoPinStatusReq(ID))
    await client.settle()
    assert [message.content.id for message in client.said] == list(range(1, 41))


class HeldAppends(list[Append]):
    """What is to be appended, and the store is not told before `let_go`."""

    def __init__(self, broker: Broker, patch: pytest.MonkeyPatch) -> None:
        store: Any = broker.core.store
        self._submit = store.submit
        patch.setattr(store, "submit", self._hold)

    def _hold(self, operation: object) -> None:
        if isinstance(operation, Append):
            self.append(operation)
        else:
            self._submit(operation)

    async def let_go(self, client: Client) -> None:
        """Have all appended, and what is to be after that."""
        while self:
            some = self.copy()
            self.clear()
            for append in some:
                self._submit(append)
            await client.settle()


async def test_events_go_on_while_others_are_stored_and_all_else_waits_for_them(
    broker: Broker, monkeypatch: pytest.MonkeyPatch
) -> None:
    client = await broker.client()
    appends = HeldAppends(broker, monkeypatch)
    await client.pin(TOPIC_A, TOPIC_B)
    made = [client.event(b"%d" % n, topic=(TOPIC_A, TOPIC_B)[n % 2]) for n in range(4)]
    numbers = [client.post(INNER, event) for event, _ in made]
    sync = client.post(INNER, TopicSyncReq(TOPIC_A.public_key, [], [], None))
    last = client.post(INNER, client.event(b"last")[0])
    await client.settle()
    assert len(appends) == 4
    assert client.said == []
    assert not client.wire.reading
    await appends.let_go(client)
    assert [message.content.id for message in client.said[:4]] == numbers
    assert client.said[-1].content.id == last
    synced = [content for result, content in client.answers(sync) if result == 1]
    assert [one.item for one in synced] == [event for event, _ in made[::2]]
    assert client.wire.reading


@pytest.mark.parametrize(("body_bytes", "most"), [(4, EVENTS_MAX), (100_000, 3)])
async def test_so_many_events_are_under_way_and_of_so_many_bytes(
    broker: Broker, monkeypatch: pytest.MonkeyPatch, body_bytes: int, most: int
) -> None:
    client = await broker.client()
    appends = HeldAppends(broker, monkeypatch)
    await client.pin(TOPIC_A)
    made = [client.event(Random(n).randbytes(body_bytes))[0] for n in range(EVENTS_MAX + 5)]
    numbers = [client.post(INNER, event) for event in made]
    await client.settle()
    assert len(appends) == most
    assert not client.wire.reading
    await appends.let_go(client)
    assert [message.content.id for message in client.said] == numbers
    assert {message.content.result for message in client.said} == {ResultCode.OK}


@pytest.mark.parametrize("mistake", ["a signature", "bytes"])
async def test_what_is_wrong_behind_events_is_told_when_they_are_answered(
    broker: Broker, monkeypatch: pytest.MonkeyPatch, mistake: str
) -> None:
    client = await broker.client()
    appends = HeldAppends(broker, monkeypatch)
    await client.pin(TOPIC_A)
    numbers = [client.post(INNER, client.event(b"%d" % n)[0]) for n in range(2)]
    forged, _ = client.event(b"forged")
    if mistake == "bytes":
        client.events.messages_received([b"no message"])
    else:
        client.post(INNER, sign_event(forged.content, TOPIC_B, client.key))
    await client.settle()
    assert client.said == []
    assert client.wire.closed is None
    await appends.let_go(client)
    told = [(message.content.id, message.content.result) for message in client.said]
    assert told == [(number, ResultCode.OK) for number in numbers]
    assert client.wire.closed is not None


async def test_a_node_that_stops_answers_the_events_that_are_under_way(
    broker: Broker, monkeypatch: pytest.MonkeyPatch
) -> None:
    client = await broker.client()
    appends = HeldAppends(broker, monkeypatch)
    await client.pin(TOPIC_A)
    numbers = [client.post(INNER, client.event(b"%d" % n)[0]) for n in range(2)]
    await client.settle()
    for cell in tuple(broker.context.connections):
        broker.core.system.post(cell, Drain())
    await client.settle()
    assert client.wire.closed is None
    assert not client.wire.reading  # or one that goes on publishing would hold up the stop
    await appends.let_go(client)
    assert [message.content.id for message in client.said] == numbers
    assert client.wire.closed == (1_001, "the node is stopping")


@pytest.mark.parametrize("numbers", [(2, 1, 3), (5, 5, 5)])
async def test_requests_may_have_any_number_above_0(
    broker: Broker, numbers: tuple[int, ...]
) -> None:
    # Released clients number a request before they wait for their turn to send it.
    client = await broker.client()
    for number in numbers:
        client.post(INNER, RepoPinStatusReq(ID), number=number)
    await client.settle()
    answers = [(one.content.id, one.content.result) for one in client.said]
    assert answers == [(number, ResultCode.FALSE) for number in numbers]


@pytest.mark.parametrize(("numbers", "at_once"), [((8, 7, 9), 3), ((8, 8, 8), 1), ((9, 7, 9), 2)])
async def test_events_may_have_any_number_above_0(
    broker: Broker, monkeypatch: pytest.MonkeyPatch, numbers: tuple[int, ...], at_once: int
) -> None:
    # One with the number of an event that is under way waits for that.
    client = await broker.client()
    appends = HeldAppends(broker, monkeypatch)
    await client.pin(TOPIC_A)
    made = [client.event(b"%d" % n)[0] for n, _ in enumerate(numbers)]
    for number, event in zip(numbers, made, strict=True):
        client.post(INNER, event, number=number)
    await client.settle()
    assert len(appends) == at_once
    while len(client.said) < len(numbers):
        await appends.let_go(client)
    told = [(message.content.id, message.content.result) for message in client.said]
    assert told == [(number, ResultCode.OK) for number in numbers]


@pytest.mark.parametrize("number", [0, -1])
async def test_an_id_that_is_none_of_a_client_s_ends_the_connection(
    broker: Broker, number: int
) -> None:
    client = await broker.client()
    client.post(INNER, RepoPinStatusReq(ID), number=number)
    await client.settle()
    assert client.wire.closed is not None
    assert client.wire.closed[0] == 4_004


async def test_what_only_brokers_forward_ends_the_connection(broker: Broker) -> None:
    for name in ("event", "block"):
        client = await broker.client(name=name)
        event, _ = client.event()
        content = event if name == "event" else event.content.blocks[0]
        message = encode_message(ClientMessage(INNER, content))
        client.events.messages_received([client.dialogue.seal(message)])
        await client.settle()
        assert client.wire.closed == (4_004, "InvalidState")


class Broken(Worker):
    """Fails at everything."""

    on_failure = "resume"

    def handle(self, message: object, sender: Cell | None) -> None:
        if isinstance(message, Asked):
            raise RuntimeError("a bug")


async def test_a_bug_behind_a_request_is_answered_too(broker: Broker) -> None:
    client = await broker.client()
    system = broker.core.system
    broker.context.overlays = Table[bytes](lambda _: system.spawn(Broken))
    assert await client.result(INNER, RepoPinStatusReq(ID)) == ResultCode.BROKER_ERROR
    assert await client.result(INNER, RepoPinStatusReq(ID)) == ResultCode.BROKER_ERROR


# What ends a connection --------------------------------------------------------------------------


async def closed(client: Client) -> tuple[int, str]:
    await client.settle()
    assert client.wire.closed is not None
    assert client.said == []
    return client.wire.closed


async def test_an_event_that_is_not_what_it_claims_ends_the_connection(broker: Broker) -> None:
    async def refused(change: str) -> tuple[int, str]:
        client = await broker.client()
        await client.pin(TOPIC_A)
        event, _ = client.event()
        topic, key, content = TOPIC_A, client.key, event.content
        match change:
            case "another's":
                event, _ = (await broker.client("bob")).event()
            case "topic":
                event = sign_event(content, TOPIC_B, key)
            case "peer":
                event = sign_event(content, topic, identity("x"))
            case "changed":
                content.seq += 1
            case "direct":
                content.publisher = DirectPeer(key.public_key)
                event = sign_event(content, topic, key)
            case _:
                del content.blocks[1:]
                event = sign_event(content, topic, key)
        client.post(INNER, event)
        return await closed(client)

    for change in ("another's", "topic", "peer", "changed", "direct", "one block"):
        assert await refused(change) == (4_005, "InvalidSignature"), change
    reader = await broker.client()
    ((_, content),) = await reader.ask(INNER, subscribe(TOPIC_A))
    assert content.commits_nbr == 0


async def test_an_advert_that_is_not_for_this_broker_and_topic_ends_the_connection(
    broker: Broker,
) -> None:
    for_another = subscribe(TOPIC_A, publisher=True, broker=identity("other broker"))
    other_topic = subscribe(TOPIC_A, publisher=True)
    other_topic.topic = TOPIC_B.public_key
    forged = pin(TOPIC_A)
    forged.rw_topics[0].sig = bytes(64)
    for request, end in (
        (for_another, (4_017, "InvalidPublisherAdvert")),
        (other_topic, (4_017, "InvalidPublisherAdvert")),
        (forged, (4_005, "InvalidSignature")),
    ):
        client = await broker.client()
        client.post(INNER, request)
        assert await closed(client) == end


async def test_what_cannot_be_read_ends_the_connection_and_touches_no_other(broker: Broker) -> None:
    bystander = await broker.client("bob")
    for frame, code in ((b"", 4_954), (b"\x06\x00\x05xxxxx", 4_032), (b"\xff" * 40, 4_954)):
        client = await broker.client()
        client.events.messages_received([frame])
        assert (await closed(client))[0] == code
    client = await broker.client()
    response = ClientMessage(INNER, ClientResponse(1, 0, EmptyResponse()))
    client.events.messages_received([client.dialogue.seal(encode_message(response))])
    assert await closed(client) == (4_003, "ActorError")
    assert await bystander.result(INNER, RepoPinStatusReq(ID)) == ResultCode.FALSE


async def test_who_does_not_come_in_within_the_time_is_closed(broker: Broker) -> None:
    wire = Wire()
    BrokerEvents(broker.context).link_opened(wire)
    client = await broker.client()
    await broker.core.settle()
    broker.core.clock.advance(HANDSHAKE_SECONDS_MAX + 0.1)
    await broker.core.settle()
    assert wire.closed == (4_019, "Timeout")
    assert client.wire.closed is None


async def test_a_probe_is_answered_and_closed_a_little_later(broker: Broker) -> None:
    wire = Wire()
    events = BrokerEvents(broker.context)
    events.link_opened(wire)
    events.messages_received([encode_message(Probe())])
    await broker.core.settle()
    assert wire.sent == [b"\x01\x04YXNK\x00"]
    assert wire.closed is None
    broker.core.clock.advance(PROBE_CLOSE_SECONDS)
    await broker.core.settle()
    assert wire.closed == (1_000, "NoError")


async def test_an_app_is_told_that_no_verifier_runs_here(broker: Broker) -> None:
    visitor = await broker.visit(APP_LOGIN)
    assert visitor.said == [AppResponse(7)]
    assert visitor.wire.closed == (4_007, "AccessDenied")


async def test_a_broker_that_stops_answers_what_it_has_read_and_reads_nothing_new(
    broker: Broker,
) -> None:
    client = await broker.client()
    await client.pin(TOPIC_A)
    event, _ = client.event()
    number = client.post(INNER, event)
    another = client.post(INNER, RepoPinStatusReq(ID))
    for cell in tuple(broker.context.connections):
        broker.core.system.post(cell, Drain())
    await client.settle()
    assert client.answers(number)[0][0] == ResultCode.OK
    assert client.answers(another)[0][0] == ResultCode.FALSE
    assert not client.wire.reading
    assert client.wire.closed == (1_001, "the node is stopping")


async def test_a_store_with_much_to_write_takes_nothing_more(
    broker: Broker, monkeypatch: pytest.MonkeyPatch
) -> None:
    client = await broker.client()
    store = type(broker.core.store)
    with monkeypatch.context() as patch:
        patch.setattr(store, "pending_bytes", STORE_PENDING_HIGH_BYTES + 1)
        client.post(INNER, RepoPinStatusReq(ID))
        await client.settle()
        assert client.said == []
        assert not client.wire.reading
    broker.core.clock.advance(0.1)
    await client.settle()
    assert [said.content.result for said in client.said] == [ResultCode.FALSE]
    assert client.wire.reading


async def test_nothing_is_kept_of_connections_that_have_ended(broker: Broker) -> None:
    for number in range(20):
        client = await broker.client("alice", str(number))
        await client.pin(TOPIC_A)
        client.leave()
    await broker.core.settle()
    assert not broker.context.connections
    assert not broker.context.sessions


# Who comes for something else --------------------------------------------------------------------


async def external(broker: Broker, content: ExtObjectGet) -> ExtResponse:
    visitor = await broker.visit(ExtRequest(0, content))
    (response,) = visitor.said
    assert isinstance(response, ExtResponse)
    assert visitor.wire.closed == (1_000, "NoError")
    return response


async def test_objects_are_given_to_strangers_where_they_are_exposed(broker: Broker) -> None:
    client = await broker.client()
    await client.pin(TOPIC_A)
    event, commit = client.event(after=[b"1" * 32])
    await client.ask(INNER, event)
    outer = OuterOverlay(b"o" * 32)
    hidden = await external(broker, ExtObjectGet(outer, [commit], True))
    assert hidden.result == ResultCode.OVERLAY_NOT_FOUND
    await client.pin(TOPIC_A, expose=True)
    shown = await external(broker, ExtObjectGet(outer, [commit], True))
    root = event.content.blocks[0]
    assert shown.content == Blocks([Block(None, root.content)])
    some = await external(broker, ExtObjectGet(outer, [ID, commit], True))
    assert (some.result, some.content) == (shown.result, shown.content)
    missing = await external(broker, ExtObjectGet(outer, [ID], True))
    assert missing.result == ResultCode.NOT_FOUND
