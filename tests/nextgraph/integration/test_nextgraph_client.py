"""NextGraph for Python against a node, and against a broker that lies."""

import asyncio
import os
from collections.abc import AsyncGenerator, Callable, Coroutine
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Any, Final

import msgspec
import pytest
from msgspec.structs import replace

from coroutines import handed_by
from nextgraph_document import (
    ACCESS,
    ALICE,
    BRANCH,
    CONVERGENCE,
    INNER,
    REPO,
    TOPIC,
    commit,
    identity,
)
from nodes import node_config
from rillnode import nextgraph
from rillnode.codecs.errors import CodecError, HandshakeError, RequestError, TransportError
from rillnode.codecs.nextgraph.client import ClientContent, ClientMessage, InboxReceive
from rillnode.codecs.nextgraph.events import Event, EventContent, crypt_event_key, sign_event
from rillnode.codecs.nextgraph.inbox import InboxBody, InboxMessage, sign_inbox_message
from rillnode.codecs.nextgraph.requests import ClientRequest
from rillnode.codecs.nextgraph.responses import (
    ClientResponse,
    EmptyResponse,
    ResponseContent,
    TopicSubRes,
    TopicSyncRes,
)
from rillnode.codecs.nextgraph.results import ResultCode
from rillnode.codecs.nextgraph.types import ForwardedPeer
from rillnode.node.nextgraph.client import client as client_module, feed as feed_module
from rillnode.node.nextgraph.client.wire import Wire
from rillnode.node.nextgraph.config import NextgraphListener
from rillnode.node.runtime import Node

SECONDS: Final = 60.0


def run(
    test: Callable[[Node], Coroutine[Any, Any, None]], directory: Path, *, invited: bool = False
) -> None:
    config = node_config(directory).having(
        NextgraphListener(listen="127.0.0.1:0", registration="invitation" if invited else "open")
    )

    async def bounded() -> None:
        async with asyncio.timeout(SECONDS), Node(config) as node:
            await test(node)

    asyncio.run(bounded())


node = handed_by(run)


@asynccontextmanager
async def client(
    node: Node, user: nextgraph.Identity = ALICE, **options: Any
) -> AsyncGenerator[nextgraph.Client]:
    broker = bytes.fromhex(node.facts["nextgraph_peer_id"])
    options = {"broker": broker, **options}
    url = f"ws://{node.addresses()['nextgraph']}"
    async with await nextgraph.connect(url, user=user, **options) as one:
        yield one


async def pinned(one: nextgraph.Client) -> list[TopicSubRes]:
    return await one.pin(REPO, ACCESS, publish=[TOPIC])


async def test_what_one_device_publishes_another_follows_syncs_and_reads(node: Node) -> None:
    async with client(node) as laptop, client(node) as phone:
        (topic,) = await pinned(laptop)
        assert (topic.topic, topic.known_heads) == (TOPIC.public_key, [])
        await pinned(phone)
        sent: list[Event] = []
        async with await phone.subscribe(INNER, REPO, TOPIC.public_key) as events:
            assert events.topic.commits_nbr == 0
            heads: list[bytes] | None = None
            for number in range(3):
                made = commit(b"%d" % number, heads)
                heads = [made.reference.id]
                sent.append((await laptop.publish(INNER, TOPIC, BRANCH, made)).event)
                event = await anext(events)
                assert event == sent[-1]
                opened = nextgraph.open_event(event, BRANCH, author=ALICE.public_key)
                assert opened.body == b"%d" % number
                assert opened.reference == made.reference
        stored = [event async for event in phone.sync(INNER, TOPIC.public_key)]
        assert stored == sent
        first = nextgraph.open_event(sent[0], BRANCH).reference.id
        later = [event async for event in phone.sync(INNER, TOPIC.public_key, known=[first])]
        assert later == sent[1:]
        header = nextgraph.open_event(sent[1], BRANCH).header
        assert header.acks == [first]


@pytest.mark.parametrize("block_bytes", [4_096, 1_048_576])
async def test_a_file_is_put_and_put_together_again(node: Node, block_bytes: int) -> None:
    content = os.urandom(2_500_000)
    made = nextgraph.split_object(content, CONVERGENCE, block_bytes=block_bytes)
    async with client(node) as one:
        await pinned(one)
        await one.put_blocks(INNER, made.blocks)
        found = await one.find_blocks(INNER, [made.reference.id, b"?" * 32])
        assert (found.found, found.missing) == ([made.reference.id], [b"?" * 32])
        ids = [made.reference.id]
        blocks = {
            nextgraph.block_id(block): block
            async for block in one.get_blocks(INNER, ids, children=True)
        }
        joined = nextgraph.join_object(made.reference, blocks, content_bytes_max=len(content))
        assert joined == content
        with pytest.raises(RequestError) as refused:
            async for _ in one.get_blocks(INNER, [b"?" * 32]):
                pass
        assert refused.value.code == "nextgraph.not_found"


def test_requests_at_one_time_and_streams_left_early_keep_their_answers_apart(
    tmp_path: Path,
) -> None:
    async def test(node: Node) -> None:
        async with client(node) as one:
            await pinned(one)
            await asyncio.gather(
                *(one.publish(INNER, TOPIC, BRANCH, commit(b"%d" % n)) for n in range(20))
            )
            reading = one.sync(INNER, TOPIC.public_key)
            await anext(reading)
            await reading.aclose()
            counts = await asyncio.gather(*(count(one) for _ in range(3)))
            assert counts == [20, 20, 20]

    async def count(one: nextgraph.Client) -> int:
        return len([event async for event in one.sync(INNER, TOPIC.public_key)])

    run(test, tmp_path)


async def test_a_commit_is_new_on_a_topic_whatever_else_has_its_blocks_and_to_one_of_its_publishers(
    node: Node,
) -> None:
    other = identity("another topic")
    async with client(node) as laptop, client(node) as phone:
        for one in (laptop, phone):
            await one.pin(REPO, ACCESS, publish=[TOPIC, other])
        events = await phone.subscribe(INNER, REPO, TOPIC.public_key)
        put = commit(b"put before")
        await laptop.put_blocks(INNER, put.blocks)
        on_both = [await laptop.publish(INNER, at, BRANCH, put) for at in (TOPIC, other)]
        assert [one.new for one in on_both] == [True, True]
        assert await anext(events) == on_both[0].event

        for number in range(10):
            made = commit(b"%d" % number)
            told = await asyncio.gather(
                *(one.publish(INNER, TOPIC, BRANCH, made) for one in (laptop, phone, laptop, phone))
            )
            assert [one.new for one in told].count(True) == 1


async def test_who_publishes_what_is_there_already_is_told_so_and_nobody_gets_it_again(
    node: Node,
) -> None:
    made = [commit(b"1"), commit(b"2")]
    async with client(node) as laptop, client(node) as phone:
        await pinned(laptop)
        await pinned(phone)
        events = await phone.subscribe(INNER, REPO, TOPIC.public_key)
        first = await laptop.publish(INNER, TOPIC, BRANCH, made[0])
        assert first.new
        async with client(node) as again:
            told = [await again.publish(INNER, TOPIC, BRANCH, one) for one in (*made, *made)]
        assert [one.new for one in told] == [False, True, False, False]
        last = await laptop.publish(INNER, TOPIC, BRANCH, commit(b"3"))
        sent = [first.event, told[1].event, last.event]
        assert [await anext(events) for _ in sent] == sent
        assert [event async for event in phone.sync(INNER, TOPIC.public_key)] == sent


async def test_a_refused_event_is_refused_by_its_own_code(node: Node) -> None:
    async with client(node) as owner, client(node, user=identity("bob")) as other:
        await pinned(owner)
        with pytest.raises(RequestError) as refused:
            await other.publish(INNER, TOPIC, BRANCH, commit(b"1"))
        assert refused.value.code == "nextgraph.access_denied"


def test_who_is_not_invited_or_expects_another_broker_is_told_so(tmp_path: Path) -> None:
    async def test(node: Node) -> None:
        invited = msgspec.json.decode((await node.client.ask("nextgraph", b"{}")).payload)
        code = nextgraph.parse_invitation(invited["link"]).code
        assert await refusal(node) == "nextgraph.invitation_required"
        assert await refusal(node, register=False) == "nextgraph.access_denied"
        async with client(node, invitation=code):
            pass
        async with client(node, register=False) as again:
            assert await pinned(again)
        other = identity("other").public_key
        assert await refusal(node, broker=other) == "nextgraph.noise_handshake_failed"

    async def refusal(node: Node, **options: Any) -> str:
        with pytest.raises(HandshakeError) as refused:
            async with client(node, **options):
                pass
        return refused.value.code

    run(test, tmp_path, invited=True)


async def test_a_sync_leaves_out_what_is_had_already(node: Node) -> None:
    async with client(node) as one:
        await pinned(one)
        made = [commit(b"0")]
        for number in range(1, 4):
            made.append(commit(b"%d" % number, [made[-1].reference.id]))
        sent = [(await one.publish(INNER, TOPIC, BRANCH, each)).event for each in made]
        had = [each.reference.id for each in made[:3]]
        later = [event async for event in one.sync(INNER, TOPIC.public_key, local=had)]
        assert later == sent[3:]


async def test_a_commit_is_read_with_the_blocks_of_its_event(node: Node) -> None:
    async with client(node) as one:
        await pinned(one)
        made = commit(b"body", [b"p" * 32])
        await one.publish(INNER, TOPIC, BRANCH, made)
        found = await one.get_commit(INNER, made.reference.id, topic=TOPIC.public_key)
        assert found == made.blocks
        with pytest.raises(RequestError) as refused:
            await one.get_commit(INNER, b"?" * 32)
        assert refused.value.code == "nextgraph.not_found"


async def test_letters_go_from_inbox_to_inbox_at_once_or_when_they_are_fetched(node: Node) -> None:
    box, own = identity("box"), identity("own box")
    outer = ACCESS.outer
    async with client(node, identity("bob")) as writer:
        for number in range(2):
            await writer.inboxes.post(outer, box.public_key, b"early %d" % number)
        async with client(node) as reader:
            inbox = await reader.inboxes.register(outer, box)
            await writer.inboxes.post(
                outer, box.public_key, b"live", sender=(outer, own), blocks=commit(b"1").blocks
            )
            live = await anext(inbox)
            assert (live.msg.body.msg, live.from_queue) == (b"live", False)
            assert live.msg.body.from_inbox == own.public_key
            assert live.msg.blocks == commit(b"1").blocks
            for number in range(2):
                await reader.inboxes.fetch()
                letter = await anext(inbox)
                assert (letter.msg.body.msg, letter.from_queue) == (b"early %d" % number, True)
            await reader.close()
            with pytest.raises(TransportError):
                await anext(inbox)


async def test_a_wallet_goes_from_device_to_device(node: Node) -> None:
    url = f"ws://{node.addresses()['nextgraph']}"
    broker = bytes.fromhex(node.facts["nextgraph_peer_id"])
    meeting = b"m" * 32
    async with client(node) as laptop:
        await laptop.leave_wallet(b"sealed", meeting)
        fetched = await nextgraph.fetch_wallet(url, broker=broker, rendezvous=meeting)
        assert fetched == b"sealed"
        with pytest.raises(RequestError) as refused:
            await nextgraph.fetch_wallet(url, broker=broker, rendezvous=meeting)
        assert refused.value.code == "nextgraph.not_found"
        waiting = asyncio.create_task(
            nextgraph.fetch_wallet(url, broker=broker, rendezvous=meeting, waits=True)
        )
        while not waiting.done():
            with suppress(RequestError):  # until the other one is there
                await laptop.leave_wallet(b"handed over", meeting, waits=True)
            await asyncio.sleep(0.01)
        assert await waiting == b"handed over"


async def test_objects_that_are_exposed_are_read_by_strangers(node: Node) -> None:
    url = f"ws://{node.addresses()['nextgraph']}"
    broker = bytes.fromhex(node.facts["nextgraph_peer_id"])
    made = commit(b"public", [b"p" * 32])
    ids = [made.reference.id]
    async with client(node) as one:
        await one.pin(REPO, ACCESS, publish=[TOPIC], expose_outer=True)
        await one.publish(INNER, TOPIC, BRANCH, made)
    shown = await nextgraph.fetch_objects(url, broker=broker, overlay=ACCESS.outer, ids=ids)
    assert shown == [replace(made.blocks[0], commit_header_key=None)]
    with pytest.raises(RequestError) as refused:
        await nextgraph.fetch_objects(url, broker=broker, overlay=INNER, ids=ids)
    assert refused.value.code == "nextgraph.overlay_mismatch"


async def test_refusals_and_too_long_requests_leave_the_connection_as_it_is(node: Node) -> None:
    async with client(node) as one:
        with pytest.raises(RequestError) as refused:
            await one.publish(INNER, TOPIC, BRANCH, commit(b"too early"))
        assert refused.value.code == "nextgraph.overlay_not_found"
        huge = nextgraph.split_object(bytes(5_000_000), CONVERGENCE, block_bytes=1_048_576)
        many = replace(huge, blocks=huge.blocks * 4)
        await pinned(one)
        with pytest.raises(CodecError) as refused_here:
            await one.publish(INNER, TOPIC, BRANCH, many)
        assert refused_here.value.code == "codec.limit"
        await one.publish(INNER, TOPIC, BRANCH, commit(b"in time"))


async def test_what_is_given_up_is_forwarded_and_kept_no_longer(node: Node) -> None:
    async with client(node) as writer, client(node) as reader:
        await pinned(writer)
        await pinned(reader)
        with pytest.raises(RequestError) as refused:
            await anext(reader.sync(INNER, TOPIC.public_key))
        assert refused.value.code == "nextgraph.topic_not_found"
        events = await reader.subscribe(INNER, REPO, TOPIC.public_key, publisher=TOPIC)
        assert events.topic.publisher
        left = await reader.subscribe(INNER, REPO, TOPIC.public_key)
        left.close()
        assert [event async for event in left] == []
        only = commit(b"only")
        await writer.publish(INNER, TOPIC, BRANCH, only)
        await anext(events)
        known = reader.sync(INNER, TOPIC.public_key, known=[only.reference.id])
        assert [event async for event in known] == []
        await reader.unsubscribe(INNER, REPO, TOPIC.public_key)
        await reader.unpin(INNER, REPO)
        with pytest.raises(RequestError) as refused:
            await reader.subscribe(INNER, REPO, TOPIC.public_key)
        assert refused.value.code == "nextgraph.not_found"


async def test_what_is_no_broker_is_told_from_what_is_not_reached(node: Node) -> None:
    http = node.addresses()["http"]
    with pytest.raises(HandshakeError) as refused:
        await nextgraph.connect(f"ws://{http}", broker=TOPIC.public_key, user=ALICE)
    assert refused.value.code == "link.refused"
    await node.stop()
    with pytest.raises(TransportError) as unreached:
        await nextgraph.connect(f"ws://{http}", broker=TOPIC.public_key, user=ALICE)
    assert unreached.value.code == "link.unreachable"


async def test_a_stopped_node_ends_requests_and_subscriptions(node: Node) -> None:
    async with client(node) as one:
        await pinned(one)
        events = await one.subscribe(INNER, REPO, TOPIC.public_key)
        await node.stop()
        with pytest.raises(TransportError) as ended:
            await anext(events)
        assert ended.value.code == "link.closed"
        with pytest.raises(TransportError):
            await pinned(one)


def test_a_reader_that_falls_behind_is_told_and_finds_the_rest_stored(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(feed_module, "FEED_BYTES_MAX", 1)

    async def test(node: Node) -> None:
        async with client(node) as writer, client(node) as reader:
            await pinned(writer)
            await pinned(reader)
            events = await reader.subscribe(INNER, REPO, TOPIC.public_key)
            made = [commit(b"%d" % number) for number in range(2)]
            sent = [(await writer.publish(INNER, TOPIC, BRANCH, one)).event for one in made]
            # An answer that comes after both events says that they have come.
            stored = [event async for event in reader.sync(INNER, TOPIC.public_key)]
            assert stored == sent
            assert await anext(events) == sent[0]
            with pytest.raises(TransportError) as behind:
                await anext(events)
            assert behind.value.code == "client.overfull"

    run(test, tmp_path)


# A broker that lies ------------------------------------------------------------------------------


class LyingWire(Wire):
    """Stands where a broker would, and answers each request with what was prepared."""

    def __init__(self, *answers: tuple[int, ResponseContent]) -> None:
        self._answers = answers
        self._said: asyncio.Queue[ClientMessage] = asyncio.Queue()

    async def send(self, message: ClientMessage) -> None:
        request = message.content
        assert isinstance(request, ClientRequest)
        for result, content in self._answers:
            response = ClientResponse(request.id, result, content)
            self._said.put_nowait(ClientMessage(message.overlay, response))

    async def receive(self) -> ClientMessage:
        return await self._said.get()

    async def close(self) -> None:
        pass

    def say(self, content: ClientContent) -> None:
        self._said.put_nowait(ClientMessage(INNER, content))


def lied_to(
    monkeypatch: pytest.MonkeyPatch,
    test: Callable[[nextgraph.Client, LyingWire], Coroutine[Any, Any, None]],
    *answers: tuple[int, ResponseContent],
) -> None:
    wire = LyingWire(*answers)

    async def opened(*_: object, **__: object) -> Wire:
        return wire

    monkeypatch.setattr(client_module, "open_wire", opened)

    async def bounded() -> None:
        async with (
            asyncio.timeout(SECONDS),
            await nextgraph.connect("ws://liar", broker=TOPIC.public_key, user=ALICE) as one,
        ):
            await test(one, wire)

    asyncio.run(bounded())


def event(body: bytes = b"body", topic: nextgraph.Identity = TOPIC) -> Event:
    made = commit(body)
    publisher = ForwardedPeer(ALICE.public_key)
    content = EventContent(topic.public_key, publisher, 1, made.blocks, [], bytes(32))
    return sign_event(content, topic, ALICE)


def forged() -> Event:
    return replace(event(), topic_sig=bytes(64))


def test_forged_letters_and_those_to_others_are_dropped(monkeypatch: pytest.MonkeyPatch) -> None:
    box = identity("box")

    def letter(to: nextgraph.Identity, sig: bytes | None) -> InboxReceive:
        body = InboxBody(INNER, to.public_key, INNER, ALICE.public_key, b"message")
        return InboxReceive(InboxMessage(body, sig or sign_inbox_message(body, ALICE), []), False)

    async def test(one: nextgraph.Client, wire: LyingWire) -> None:
        async with await one.inboxes.register(INNER, box) as inbox:
            wire.say(letter(box, bytes(64)))
            wire.say(letter(TOPIC, None))
            wire.say(letter(box, None))
            assert await anext(inbox) == letter(box, None)
            assert inbox.refused == 1

    lied_to(monkeypatch, test, (ResultCode.OK, EmptyResponse()))


def test_an_inbox_that_is_registered_again_ends_for_who_had_it_before(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    box = identity("box")
    body = InboxBody(INNER, box.public_key, INNER, ALICE.public_key, b"message")
    letter = InboxReceive(InboxMessage(body, sign_inbox_message(body, ALICE), []), False)

    async def test(one: nextgraph.Client, wire: LyingWire) -> None:
        before = await one.inboxes.register(INNER, box)
        after = await one.inboxes.register(INNER, box)
        assert [letter async for letter in before] == []
        before.close()
        wire.say(letter)
        assert await anext(after) == letter

    ok = (ResultCode.OK, EmptyResponse())
    lied_to(monkeypatch, test, ok, ok)


def test_a_commit_without_its_root_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    made = commit(b"another")

    async def test(one: nextgraph.Client, _: LyingWire) -> None:
        with pytest.raises(CodecError) as wrong:
            await one.get_commit(INNER, b"?" * 32)
        assert wrong.value.code == "block.id"

    ends = (ResultCode.END_OF_STREAM, EmptyResponse())
    lied_to(monkeypatch, test, (ResultCode.PARTIAL_CONTENT, made.blocks[0]), ends)


def test_forged_events_are_dropped_and_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    async def test(one: nextgraph.Client, wire: LyingWire) -> None:
        async with await one.subscribe(INNER, REPO, TOPIC.public_key) as events:
            wire.say(forged())
            wire.say(commit(b"a block out of place").blocks[0])
            wire.say(ClientResponse(99, ResultCode.OK, EmptyResponse()))
            wire.say(event(topic=identity("another topic")))
            wire.say(event())
            assert await anext(events) == event()
            assert events.refused == 1

    lied_to(monkeypatch, test, (ResultCode.OK, TopicSubRes(TOPIC.public_key, [], False, 0)))


@pytest.mark.parametrize(
    ("item", "code"),
    [
        (TopicSyncRes(forged()), "nextgraph.invalid_signature"),
        (TopicSyncRes(event(topic=identity("another topic"))), "nextgraph.answer"),
        (EmptyResponse(), "nextgraph.answer"),
    ],
)
def test_what_does_not_belong_to_a_topic_ends_its_sync(
    monkeypatch: pytest.MonkeyPatch, item: ResponseContent, code: str
) -> None:
    async def test(one: nextgraph.Client, wire: LyingWire) -> None:
        with pytest.raises(CodecError) as refused:
            async for _ in one.sync(INNER, TOPIC.public_key):
                pass
        assert refused.value.code == code

    lied_to(monkeypatch, test, (ResultCode.PARTIAL_CONTENT, item))


def test_blocks_that_nobody_asked_for_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    async def test(one: nextgraph.Client, wire: LyingWire) -> None:
        with pytest.raises(CodecError) as refused:
            async for _ in one.get_blocks(INNER, [b"?" * 32], children=True):
                pass
        assert refused.value.code == "block.id"

    lied_to(monkeypatch, test, (ResultCode.PARTIAL_CONTENT, commit(b"body").blocks[0]))


def test_a_result_that_there_is_not_is_a_refusal(monkeypatch: pytest.MonkeyPatch) -> None:
    async def test(one: nextgraph.Client, wire: LyingWire) -> None:
        with pytest.raises(RequestError) as refused:
            await pinned(one)
        assert refused.value.code == "nextgraph.result_99"

    lied_to(monkeypatch, test, (99, EmptyResponse()))


def test_one_answer_of_another_kind_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    async def test(one: nextgraph.Client, wire: LyingWire) -> None:
        with pytest.raises(CodecError) as refused:
            await one.find_blocks(INNER, [])
        assert refused.value.code == "nextgraph.answer"

    lied_to(monkeypatch, test, (ResultCode.OK, TopicSubRes(TOPIC.public_key, [], False, 0)))


@pytest.mark.parametrize(
    ("change", "code"),
    [
        ({"key": bytes(5)}, "event.key"),
        ({"blocks": commit(b"body").blocks[:1] * 2}, "object.missing"),
    ],
)
def test_an_event_that_is_not_whole_is_not_opened(change: dict[str, Any], code: str) -> None:
    made = commit(b"body")
    publisher = ForwardedPeer(ALICE.public_key)
    key = crypt_event_key(
        made.reference.key,
        repo_id=BRANCH.repo_id,
        branch_id=BRANCH.id,
        read_cap_key=BRANCH.read_cap_key,
        publisher=ALICE.public_key,
        seq=1,
    )
    content = EventContent(TOPIC.public_key, publisher, 1, made.blocks, [], key)
    whole = sign_event(content, TOPIC, ALICE)
    assert nextgraph.open_event(whole, BRANCH, author=ALICE.public_key).body == b"body"
    with pytest.raises(CodecError) as refused:
        nextgraph.open_event(sign_event(replace(content, **change), TOPIC, ALICE), BRANCH)
    assert refused.value.code == code
    with pytest.raises(CodecError) as refused:
        nextgraph.open_event(whole, BRANCH, author=TOPIC.public_key)
    assert refused.value.code == "commit.author"
