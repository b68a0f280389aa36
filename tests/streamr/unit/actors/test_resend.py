"""Resends: which messages, in which order, within which bounds, for all ways to ask."""

import random
from collections.abc import Sequence
from dataclasses import replace
from typing import Any, cast

import pytest

from resend_support import Sink
from rillnode.actors.core.access import Verb
from rillnode.actors.core.room import Room
from rillnode.actors.engine.outside import Outside
from rillnode.actors.log import PutStream, RemoveStream, StreamRecord, Trim, log_id
from rillnode.actors.streamr import resend
from rillnode.actors.streamr.connection import StreamrConnection
from rillnode.actors.streamr.requests import ResendQuery
from rillnode.actors.streamr.resend import spawn_resend
from rillnode.codecs.limits import LINK_BUFFER_HIGH_BYTES
from rillnode.codecs.streamr.limits import STREAMR_RESENDS_PER_LINK_MAX
from rillnode.codecs.streamr.stream_message import MessageRef, StreamMessage
from streamr_support import ALICE, BOB, STREAM, StreamrCore, array, message, publish, with_streamr

A, B = ALICE.address, BOB.address
MESSAGES = [
    # In the order of publishing, which is not that of their timestamps.
    message(3_000, 0, chain="a1"),
    message(1_000, 0, key=BOB, chain="b1"),
    message(3_000, 1, chain="a1"),
    message(2_000, 5, key=BOB, chain="b2"),
    message(3_000, 0, key=BOB, chain="b1"),
    message(4_000, 0, chain="a1"),
    message(2_000, 0, chain="a2"),
]
BY_TIME = [
    (1_000, 0, "b1"), (2_000, 0, "a2"), (2_000, 5, "b2"), (3_000, 0, "a1"), (3_000, 0, "b1"),
    (3_000, 1, "a1"), (4_000, 0, "a1"),
]  # fmt: skip

RULES: list[tuple[str, list[Any], list[tuple[int, int, str]]]] = [
    # facts of section 3 and 7: what is asked for, and which of BY_TIME it brings
    ("last 3", [11, 3], BY_TIME[-3:]),
    ("last more than there are", [11, 100], BY_TIME),
    ("last none", [11, 0], []),
    ("from is inclusive", [12, [3_000, 0], None], BY_TIME[3:]),
    ("from within a millisecond", [12, [3_000, 1], None], BY_TIME[5:]),
    ("from without a sequence is the first", [12, [2_000, None], None], BY_TIME[1:]),
    ("from between messages", [12, [2_500, 7], None], BY_TIME[3:]),
    ("from past the end", [12, [4_000, 1], None], []),
    ("from of a publisher", [12, [2_000, 0], A], [BY_TIME[1], *BY_TIME[3:4], *BY_TIME[5:]]),
    ("publishers have no case", [12, [0, 0], B.lower()], [BY_TIME[i] for i in (0, 2, 4)]),
    ("a publisher that is none", [12, [0, 0], "0x00"], []),
    ("range is inclusive at both ends", [13, [2_000, 5], [3_000, 0], None, None], BY_TIME[2:5]),
    ("range to without a sequence is the last", [13, [2_000, 0], [3_000, None], None, None],
     BY_TIME[1:6]),
    ("range of one message", [13, [4_000, 0], [4_000, 0], None, None], BY_TIME[6:]),
    ("range of a chain", [13, [0, 0], [9_000, 0], A, "a1"], [BY_TIME[i] for i in (3, 5, 6)]),
    ("range whose lower bound is no message", [13, [3_000, 2], [4_000, 0], A, "a1"], BY_TIME[6:]),
    ("range of a publisher", [13, [2_000, 0], [3_000, 0], B, None], [BY_TIME[2], BY_TIME[4]]),
    ("range of another's chain", [13, [0, 0], [9_000, 0], A, "b1"], []),
    ("range of nothing", [13, [5_000, 0], [6_000, 0], None, None], []),
]  # fmt: skip


async def filled(node: StreamrCore) -> None:
    await node.stream()
    for made in MESSAGES:
        # Each from a new relay's view: a chain's messages come in any order.
        assert await node.client().ask(publish(made)) == []


def request_of(kind: int, rest: list[Any], version: int) -> list[object]:
    if version == 2:
        return [2, kind, "r", STREAM, 0, *rest, None]
    if kind == 12:
        rest = [*rest, None]
    return [1, kind, STREAM, 0, "r", *rest, None]


def named(answers: list[Any]) -> list[tuple[int, int, str]]:
    assert all(answer[1] == 1 and answer[2] == "r" for answer in answers)
    names = [answer[3][1] for answer in answers]
    return [(name[2], name[3], name[5]) for name in names]


@pytest.mark.parametrize("version", [1, 2])
@pytest.mark.parametrize(("rule", "asked", "found"), RULES, ids=[rule[0] for rule in RULES])
async def test_rule(
    node: StreamrCore, rule: str, asked: list[Any], found: list[Any], version: int
) -> None:
    await filled(node)
    client = node.client(version, 31 if version == 1 else 32)
    answers = await client.ask(request_of(asked[0], asked[1:], version))
    end = [STREAM, 0, "r"] if version == 1 else ["r", STREAM, 0]
    if not found:
        assert answers == [[version, 6, *end]]
        return
    assert (answers[0], answers[-1]) == ([version, 4, *end], [version, 5, *end])
    assert named(answers[1:-1]) == found


async def test_positions_in_the_log_are_the_specification_s_way_to_ask(node: StreamrCore) -> None:
    await filled(node)
    client = node.client(1, 31)
    cases: list[tuple[list[Any], list[int]]] = [
        ([True, None, None, None], list(range(7))),
        ([None, 2, None, None], [5, 6]),
        ([None, None, 5, None], [5, 6]),
        ([None, None, 2, 3], [2, 3]),
        ([None, None, 7, None], []),
        ([None, None, 0, 10_000], list(range(7))),
    ]
    for asked, indexes in cases:
        answers = await client.ask([1, 11, STREAM, 0, "r", *asked])
        ids = [made.id for made in MESSAGES]
        wanted = [[ids[index].timestamp, ids[index].sequence] for index in indexes]
        if asked[1] is not None:
            wanted = [[*one[:2]] for one in BY_TIME[-asked[1] :]]
        assert [answer[3][1][2:4] for answer in answers[1:-1]] == wanted


async def test_a_resend_sees_what_was_published_before_it(node: StreamrCore) -> None:
    await node.stream()
    client = node.client()
    made = message(1_000)
    answers = await client.ask(publish(made), [2, 11, "r", STREAM, 0, 1, None])
    assert answers[1] == [2, 1, "r", array(made)]


def test_a_resend_ends_where_the_log_did(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(resend, "PAGE_KEYS", 2)

    async def test(node: StreamrCore) -> None:
        await filled(node)
        sink = Sink()
        sink.buffered_bytes = 2_097_153
        spawn_resend(node.context, QUERY, sink)
        # It has its first page and waits for its client, while the log grows.
        await node.core.settle()
        await node.client().ask(publish(message(9_000)))
        sink.buffered_bytes = 0
        for _ in range(10):
            node.core.clock.advance(0.1)
            await node.core.settle()
        assert len(sink.messages) == len(MESSAGES)
        assert sink.end == [None]

    with_streamr(test)


async def test_what_was_trimmed_is_left_out(node: StreamrCore) -> None:
    await filled(node)
    trim = Trim(reply_to=node.core.streams, token=None, log=log_id(1, 0), before=4)
    node.core.store.submit(trim)
    node.core.store.flush()
    answers = await node.client().ask([2, 11, "r", STREAM, 0, 10, None])
    assert named(answers[1:-1]) == [BY_TIME[1], BY_TIME[4], BY_TIME[6]]


@pytest.mark.parametrize(
    "asked", [{"first_index": 0}, {"last": 10}, {"from_ref": MessageRef(0, 0)}]
)
@pytest.mark.parametrize("made_again", [False, True])
@pytest.mark.parametrize("slices", [0, 1])
def test_what_a_removal_cuts_off_is_not_taken_for_whole(
    monkeypatch: pytest.MonkeyPatch, asked: dict[str, Any], made_again: bool, slices: int
) -> None:
    """The store knows of a removal before anybody is told of it."""
    monkeypatch.setattr(resend, "PAGE_KEYS", 2)
    monkeypatch.setattr(resend, "READ_BYTES", 1)

    async def test(node: StreamrCore) -> None:
        await filled(node)
        sink = Sink()
        sink.buffered_bytes = 0 if slices else 2_097_153
        spawn_resend(node.context, replace(QUERY, **asked), sink)

        def removed(messages: Sequence[StreamMessage]) -> None:
            sink.messages += messages
            sink.buffered_bytes = 2_097_153

        monkeypatch.setattr(sink, "resent", removed)
        await node.core.settle()
        node.core.store.submit(RemoveStream(reply_to=Outside("nobody"), name=STREAM))
        if made_again:
            record = StreamRecord(name=STREAM)
            node.core.store.submit(PutStream(reply_to=Outside("nobody"), record=record))
        node.core.store.flush()
        sink.buffered_bytes = 0
        monkeypatch.undo()
        for _ in range(20):
            node.core.clock.advance(0.1)
            await node.core.settle()
        assert len(sink.messages) < len(MESSAGES)
        assert bool(sink.messages) is bool(slices)
        assert [error and error.code for error in sink.end] == ["RESEND_FAILED"]

    with_streamr(test)


async def test_what_has_lived_for_its_time_is_left_out(node: StreamrCore) -> None:
    await node.stream()
    client = node.client(1, 31)
    now = node.core.clock.now_ms()
    for seconds in (10, 20):
        old = [29, STREAM, 0, now, seconds, None, None, 27, '{"a":1}', 0, None, None]
        await client.ask([1, 8, old, None])
    asked = [1, 11, STREAM, 0, "r", 10, None]
    assert len(await client.ask(asked)) == 4
    node.core.clock.advance(15.0)
    assert len(await client.ask(asked)) == 3
    node.core.clock.advance(15.0)
    assert await client.ask(asked) == [[1, 6, STREAM, 0, "r"]]


QUERY = ResendQuery(stream_id=STREAM, partition=0, principal="anonymous")


async def test_a_resend_waits_for_its_client_and_goes_on(node: StreamrCore) -> None:
    await filled(node)
    sink = Sink()
    sink.buffered_bytes = 2_097_153
    spawn_resend(node.context, QUERY, sink)
    await node.core.settle()
    sink.buffered_bytes = 1_500_000
    node.core.clock.advance(0.1)
    await node.core.settle()
    assert not sink.messages
    assert not sink.end
    sink.buffered_bytes = 1_000_000
    node.core.clock.advance(0.1)
    await node.core.settle()
    assert len(sink.messages) == len(MESSAGES)
    assert sink.end == [None]


def test_the_resends_of_one_client_take_turns(monkeypatch: pytest.MonkeyPatch) -> None:
    """What they have read and not sent counts together: a thousandth of it for each is a lot."""
    monkeypatch.setattr(resend, "READ_BYTES", 200_000)
    monkeypatch.setattr(resend, "SLICE_ENTRIES", 1)
    count, size = 8, 150_000
    asked = 10

    async def test(node: StreamrCore) -> None:
        await node.stream()
        client = node.client()
        for number in range(count):
            content = f'{{"a":"{"x" * size}"}}'
            await client.ask(publish(message(number + 1, key=None, content=content)))
        client.link.is_slow = True
        client.send(*([2, 12, str(nth), STREAM, 0, [0, 0], None, None] for nth in range(asked)))
        heard: list[list[Any]] = []
        most = 0
        while len([one for one in heard if one[1] == 5]) < asked:
            answers = await client.heard()
            assert answers
            heard += answers
            most = max(most, client.link.buffered_bytes)
            client.link.buffered_bytes = 0
            node.core.clock.advance(0.1)
        assert LINK_BUFFER_HIGH_BYTES < most < LINK_BUFFER_HIGH_BYTES + 4 * size
        firsts = [heard.index([2, 4, str(nth), STREAM, 0]) for nth in range(asked)]
        assert max(firsts) < 3 * asked + 2  # none has its second before all have their first
        for nth in range(asked):
            found = [one for one in heard if one[1] == 1 and one[2] == str(nth)]
            assert [one[3][1][2] for one in found] == list(range(1, count + 1))
        connection = client.events.cell
        assert connection is not None
        room = cast(StreamrConnection, connection.instance)._room  # pyright: ignore[reportPrivateUsage]
        assert room is not None
        assert (room.reading_bytes, room.kept_bytes, room.waiting) == (0, 0, 0)

    with_streamr(test)


def test_a_resend_that_is_ended_takes_no_room(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(resend, "SLICE_ENTRIES", 1)

    async def test(node: StreamrCore) -> None:
        await filled(node)
        sink = Sink()
        room = Room(node.core.store, sink, node.core.clock.call_later)
        cell = spawn_resend(node.context, QUERY, sink, room=room)
        kept: list[int] = []

        def end(_: object) -> None:
            kept.append(room.kept_bytes)
            node.core.system.exit(cell)

        monkeypatch.setattr(sink, "resent", end)
        await node.core.settle()
        assert (room.reading_bytes, room.kept_bytes, room.waiting) == (0, 0, 0)
        assert [error and error.code for error in sink.end] == ["RESEND_FAILED"]
        assert kept[0] > 0

    with_streamr(test)


@pytest.mark.parametrize(
    ("query", "code"),
    [
        (ResendQuery(stream_id="none", partition=0, principal="anonymous"), "NOT_FOUND"),
        (ResendQuery(stream_id=STREAM, partition=1, principal="anonymous"), "RESEND_FAILED"),
        (ResendQuery(stream_id="nextgraph/a", partition=0, principal="anonymous"), "NOT_FOUND"),
    ],
)
async def test_what_cannot_be_resent_is_told(
    node: StreamrCore, query: ResendQuery, code: str
) -> None:
    await filled(node)
    sink = Sink()
    spawn_resend(node.context, query, sink)
    await node.core.settle()
    assert [error and error.code for error in sink.end] == [code]


async def test_pull_and_subscribe_both_let_one_read_what_is_stored(node: StreamrCore) -> None:
    await filled(node)
    node.core.access.revoke("anonymous")
    rules: list[tuple[Verb, int]] = [("push", 1), ("pull", 3), ("subscribe", 3)]
    for verb, answers in rules:
        node.grant("anonymous", verb)
        assert len(await node.client().ask([2, 11, "r", STREAM, 0, 1, None])) == answers
        node.core.access.revoke("anonymous")


async def test_more_resends_than_a_client_may_have_at_once_are_all_answered(
    node: StreamrCore,
) -> None:
    await filled(node)
    count = 3 * STREAMR_RESENDS_PER_LINK_MAX
    asked = [[2, 11, f"{number}", STREAM, 0, 2, None] for number in range(count)]
    answers = await node.client().ask(*asked)
    ended = [answer[2] for answer in answers if answer[1] == 5]
    assert sorted(ended, key=int) == [f"{number}" for number in range(count)]


async def test_pages_and_blocks_do_not_show(node: StreamrCore) -> None:
    await node.stream()
    numbers = random.Random(7)
    # Unsigned messages of chains of one each: in any order, with many of one millisecond.
    stamps = [(numbers.randrange(200), number) for number in range(2_500)]
    client = node.client()
    await client.ask(*(publish(message(at, n, key=None, chain=f"{n}")) for at, n in stamps))
    await node.core.settle()
    stamps.sort()
    for query, wanted in (
        (QUERY, stamps),
        (ResendQuery(stream_id=STREAM, partition=0, principal="", last=1_800), stamps[-1_800:]),
        (
            ResendQuery(
                stream_id=STREAM,
                partition=0,
                principal="",
                from_ref=MessageRef(20, None),
                to_ref=MessageRef(180, None),
                publisher_id="SOMEBODY",
            ),
            [stamp for stamp in stamps if 20 <= stamp[0] <= 180],
        ),
    ):
        sink = Sink()
        spawn_resend(node.context, query, sink)
        for _ in range(40):
            await node.core.settle()
        assert [(made.id.timestamp, made.id.sequence) for made in sink.messages] == wanted
        assert sink.end == [None]
