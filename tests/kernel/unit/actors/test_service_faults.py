"""The stream service fails at each kind of message: each request has one outcome."""

import asyncio
from collections.abc import Callable
from typing import Any, get_args

import msgspec
import pytest

from core_support import Core, Request, decode, encode, with_core
from rillnode.actors.core.quotas import Quota
from rillnode.actors.core.streams.context import StreamRemoved
from rillnode.actors.core.streams.revising import EnsureStream, Revised, ReviseStream
from rillnode.actors.core.streams.service import StreamService
from rillnode.actors.engine.faults import When
from rillnode.actors.engine.system import Cell
from rillnode.actors.log import (
    FindStream,
    ListStreams,
    PutStream,
    RemoveStream,
    Retention,
    StreamRecord,
    Trim,
)
from rillnode.codecs import native
from rillnode.codecs.entries import pack_body
from rillnode.codecs.errors import ActorError, StoreError
from rillnode.codecs.routing import stream_admin
from rillnode.codecs.routing.stream import CreateRequest, CreateResponse, ErrorResponse, Status
from rillnode.node.simulation.leftovers import remembered
from rillnode.testing import fail

MADE = "made"
"""A stream that is there before the service fails."""

at_both_times = pytest.mark.parametrize("when", get_args(When))

REQUESTS: dict[str, Callable[[int], Request]] = {
    "create": lambda _: CreateRequest("new"),
    "open": lambda number: native.OpenRequest(number, "new", 2),
    "grow": lambda number: native.OpenRequest(number, MADE, 3),
    "describe": lambda number: native.DescribeRequest(number, MADE),
    "trim": lambda number: native.TrimRequest(number, MADE, 0, 1),
    "remove": lambda number: native.RemoveRequest(number, MADE),
    "list": lambda number: native.ListRequest(number, "", ""),
    "retain": lambda number: stream_admin.AdminRequest(
        number, stream_admin.Retain(MADE, stream_admin.Limits(None, 5, None))
    ),
}

OPERATIONS: list[tuple[type[Any], str]] = [
    (FindStream, "create"),
    (FindStream, "describe"),
    (PutStream, "create"),
    (PutStream, "open"),
    (PutStream, "grow"),
    (PutStream, "retain"),
    (Trim, "trim"),
    (RemoveStream, "remove"),
    (ListStreams, "list"),
]


def refuses(answer: object) -> bool:
    """Whether an answer tells of a failure, in whatever protocol."""
    match answer:
        case native.Failure() | ErrorResponse() | stream_admin.AdminResponse(status=Status.ERROR):
            return True
        case _:
            return False


async def made(core: Core) -> Any:
    peer = core.peer()
    await peer.ask("stream", native.OpenRequest(1, MADE, 1))
    await peer.ask(f"ST_S_0_{MADE}", native.AppendRequest(2, 2, pack_body([b"a", b"b"])))
    return peer


@at_both_times
@pytest.mark.parametrize("request_name", REQUESTS)
def test_a_request_that_it_fails_at_has_one_outcome(request_name: str, when: When) -> None:
    async def test(core: Core) -> None:
        peer = await made(core)
        with fail(StreamService, when=when) as fault:
            answers = await peer.ask("stream", REQUESTS[request_name](7))
        assert fault.hits == 1
        assert len(answers) == 1
        if when == "before":
            assert refuses(answers[0])
        again = await peer.ask("stream", native.OpenRequest(8, "other", 1), REQUESTS["list"](9))
        assert len(again) == 2
        assert not any(map(refuses, again))
        assert list(remembered(core.system)) == []

    with_core(test)


@at_both_times
@pytest.mark.parametrize(("operation", "request_name"), OPERATIONS)
def test_an_operation_that_it_fails_at_costs_those_under_way_an_answer_each(
    operation: type[Any], request_name: str, when: When, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def test(core: Core) -> None:
        peer = await made(core)
        # What is read is answered later, as by a store that is not in memory.
        read = core.store.read

        def later(asked: Any) -> bool:
            if read(asked):
                core.system.post_threadsafe([(asked.reply_to, asked, asked.then)])
            return False

        monkeypatch.setattr(core.store, "read", later)
        requests = [REQUESTS[request_name](number) for number in (7, 8, 9)]
        with fail(StreamService, operation, when=when) as fault:
            answers = await peer.ask("stream", *requests)
        assert fault.hits == 1
        assert len(answers) == 3
        if when == "before":
            assert refuses(answers[0])
        (answer,) = await peer.ask("stream", native.OpenRequest(8, MADE, 1))
        assert isinstance(answer, native.StreamResponse)
        (answer,) = await peer.ask("stream", native.OpenRequest(8, "other", 1))
        assert isinstance(answer, native.StreamResponse)
        assert list(remembered(core.system)) == []

    with_core(test)


@at_both_times
def test_a_stream_has_one_actor_for_each_partition_whatever_becomes_of_the_service(
    when: When,
) -> None:
    async def test(core: Core) -> None:
        peer = await made(core)
        address = f"ST_S_0_{MADE}"
        actor = core.router.lookup(address.encode())
        with fail(StreamService, when=when):
            await peer.ask("stream", REQUESTS["describe"](7))
        (answer,) = await peer.ask("stream", native.OpenRequest(8, MADE, 2))
        assert answer.stream.partitions[0].address == address.encode()
        (answer,) = await peer.ask(address, native.AppendRequest(9, 1, pack_body([b"c"])))
        assert answer.index == 2
        assert core.router.lookup(address.encode()) is actor

    with_core(test)


@at_both_times
@pytest.mark.parametrize("operation", [None, FindStream, PutStream])
def test_who_has_a_stream_revised_is_told_once(operation: type[Any] | None, when: When) -> None:
    async def test(core: Core) -> None:
        await made(core)

        def grown(record: StreamRecord) -> StreamRecord:
            return msgspec.structs.replace(record, partitions=record.partitions + 1)

        revise = ReviseStream(MADE, "owner", grown)
        with fail(StreamService, operation or ReviseStream, when=when) as fault:
            outcome = await asyncio.gather(
                core.system.ask(core.streams, revise, 5), return_exceptions=True
            )
        assert fault.hits == 1
        if operation is None and when == "after":
            assert isinstance(outcome[0], Revised)
        else:
            assert isinstance(outcome[0], ActorError)
            assert outcome[0].code == "actor.failed"
        again = await core.system.ask(core.streams, revise, 5)
        assert again.error is None

    with_core(test)


@at_both_times
def test_a_configured_stream_that_it_fails_at_is_made_by_the_next_configuration(
    when: When,
) -> None:
    async def test(core: Core) -> None:
        ensure = EnsureStream("configured", 2, Retention(entries_max=3))
        with fail(StreamService, EnsureStream, when=when) as fault:
            core.system.post(core.streams, ensure)
            await core.settle()
        assert fault.hits == 1
        core.system.post(core.streams, ensure)
        (answer,) = await core.peer().ask("stream", native.DescribeRequest(1, "configured"))
        assert len(answer.stream.partitions) == 2
        assert answer.stream.retain_entries_max == 3

    with_core(test)


def test_what_follows_from_a_write_does_so_though_the_instance_is_gone(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async def test(core: Core) -> None:
        changes: list[StreamRecord | StreamRemoved] = []
        peer = await made(core)
        (answer,) = await peer.ask("stream", native.OpenRequest(3, "second", 1))
        assert isinstance(answer, native.StreamResponse)
        await core.settle()
        core.changes.append(changes.append)
        held: list[Any] = []
        submit = core.store.submit

        def hold(operation: Any) -> None:
            held.append(operation)

        monkeypatch.setattr(core.store, "submit", hold)
        peer.answers.clear()
        peer.send("stream", encode(native.RemoveRequest(7, MADE)))
        await core.settle()
        with fail(StreamService):
            peer.send("stream", encode(native.DescribeRequest(8, "second")))
            await core.settle()
        monkeypatch.setattr(core.store, "submit", submit)
        assert [type(one) for one in held] == [RemoveStream]
        submit(held[0])
        await core.settle()
        assert [type(one) for one in changes] == [StreamRemoved]
        told = [decode(one.payload) for one in peer.answers]
        assert sorted(one.request_id for one in told) == [7, 8]
        # Who had the stream counted for it may have another.
        (answer,) = await peer.ask("stream", native.OpenRequest(9, "third", 1))
        assert isinstance(answer, native.StreamResponse)

    with_core(test, quotas=[Quota(who="friend", streams_max=2)])


def test_those_who_wait_for_one_name_share_the_stores_answer(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async def test(core: Core) -> None:
        peer = await made(core)
        looks: list[Any] = []
        away = False
        read = core.store.read

        def later(asked: Any) -> bool:
            looks.append(asked)
            if away:
                asked.error = StoreError("store.unavailable", "away")
            if away or read(asked):
                core.system.post_threadsafe([(asked.reply_to, asked, asked.then)])
            return False

        monkeypatch.setattr(core.store, "read", later)
        answers = await peer.ask(
            "stream", *(native.OpenRequest(number, MADE, 1) for number in range(1_000))
        )
        assert [one.request_id for one in answers] == list(range(1_000))
        assert len(looks) <= 2
        looks.clear()
        away = True
        answers = await peer.ask(
            "stream", *(native.OpenRequest(number, MADE, 1) for number in range(1_000))
        )
        assert {one.code for one in answers} == {"store.unavailable"}
        assert len(answers) == 1_000
        assert len(looks) <= 2
        # What comes later asks anew.
        away = False
        (answer,) = await peer.ask("stream", native.OpenRequest(1, MADE, 1))
        assert isinstance(answer, native.StreamResponse)

    with_core(test)


def test_a_creation_that_it_fails_at_again_and_again_is_answered_each_time() -> None:
    """As long as it is restarted; then its address is unknown, and the node not ready."""

    async def test(core: Core) -> None:
        peer = core.peer()
        ended: list[Cell] = []

        def on_fatal(cell: Cell, _: BaseException) -> None:
            ended.append(cell)

        core.system.on_fatal = on_fatal
        with fail(StreamService, times=StreamService.restarts_max + 1, when="after") as fault:
            for _ in range(StreamService.restarts_max + 1):
                (answer,) = await peer.ask("stream", CreateRequest("s"))
                assert isinstance(answer, CreateResponse | ErrorResponse)
        assert fault.hits == StreamService.restarts_max + 1
        assert ended == [core.streams]

    with_core(test)
