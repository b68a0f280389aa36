"""`stream_admin`: what may be asked of a stream over any link by who administers it."""

from typing import Any

import pytest

from core_support import Core, Peer
from rillnode.actors.core.access import Grant, Verb
from rillnode.actors.core.streams.retention import SWEEP_SECONDS
from rillnode.codecs import native
from rillnode.codecs.routing.stream import (
    CreatePartitionedRequest,
    ErrorResponse,
    PullRequest,
    PullResponse,
    PushRequest,
    Status,
)
from rillnode.codecs.routing.stream_admin import (
    AdminRequest,
    AdminResponse,
    Delete,
    Describe,
    Limits,
    PartitionExtent,
    Retain,
    Trim,
)

COMMANDS = [Describe("s"), Delete("s"), Trim("s", 0, 1), Retain("s", Limits(entries_max=1))]


async def owner(core: Core, entries: int = 3) -> Peer:
    """A peer on an `ockam` link with a stream of two partitions, entries in the first."""
    peer = core.peer(native_too=False)
    await peer.ask("stream", CreatePartitionedRequest("s", 2))
    for number in range(entries):
        await peer.ask(b"ST_S_0_s", PushRequest(1, b"%d" % number))
    return peer


async def administer(peer: Peer, command: Any) -> AdminResponse:
    (answer,) = await peer.ask("stream", AdminRequest(7, command))
    assert isinstance(answer, AdminResponse)
    assert answer.request_id == 7
    return answer


async def test_a_stream_is_described(core: Core) -> None:
    answer = await administer(await owner(core), Describe("s"))
    assert (answer.status, answer.reason) == (Status.OK, "")
    assert answer.stream is not None
    assert (answer.stream.stream_name, answer.stream.owner) == ("s", "friend")
    assert answer.stream.limits == Limits()
    assert answer.stream.partitions == [PartitionExtent(0, 0, 3, 3), PartitionExtent(1, 0, 0, 0)]


async def test_a_partition_is_trimmed_and_the_answer_shows_it(core: Core) -> None:
    peer = await owner(core)
    answer = await administer(peer, Trim("s", 0, 2))
    assert answer.status is Status.OK
    assert answer.stream is not None
    assert answer.stream.partitions[0] == PartitionExtent(0, 2, 3, 1)
    assert await peer.ask(b"ST_S_0_s", PullRequest(1, 0, 9)) == [PullResponse(1, [(2, b"2")])]
    beyond = await administer(peer, Trim("s", 2, 1))
    assert beyond == AdminResponse(7, Status.ERROR, "stream.partition")


async def test_a_stream_is_deleted_once(core: Core) -> None:
    peer = await owner(core)
    assert await administer(peer, Delete("s")) == AdminResponse(7, Status.OK)
    gone = AdminResponse(7, Status.ERROR, "stream.unknown")
    for command in COMMANDS:
        assert await administer(peer, command) == gone
    assert await peer.ask(b"ST_S_0_s", PullRequest(1, 0, 9)) == []


async def test_limits_take_effect_and_can_be_taken_back(core: Core) -> None:
    peer = await owner(core)
    answer = await administer(peer, Retain("s", Limits(entries_max=1)))
    assert answer.stream is not None
    assert answer.stream.limits == Limits(entries_max=1)
    core.clock.advance(SWEEP_SECONDS + 0.1)
    await core.settle()
    answer = await administer(peer, Retain("s", Limits()))
    assert answer.stream is not None
    assert (answer.stream.limits, answer.stream.partitions[0].first_index) == (Limits(), 2)
    for number in range(3):
        await peer.ask(b"ST_S_0_s", PushRequest(1, b"%d" % number))
    core.clock.advance(SWEEP_SECONDS + 0.1)
    answer = await administer(peer, Describe("s"))
    assert answer.stream is not None
    assert answer.stream.partitions[0] == PartitionExtent(0, 2, 6, 4)


@pytest.mark.parametrize("limit", [0, 2**53 + 1, 2**64 - 1])
@pytest.mark.parametrize("name", ["milliseconds", "entries_max", "bytes_max"])
async def test_limits_without_a_sense_are_refused(core: Core, name: str, limit: int) -> None:
    peer = await owner(core, 0)
    answer = await administer(peer, Retain("s", Limits(**{name: limit})))
    assert answer == AdminResponse(7, Status.ERROR, "stream.invalid")


@pytest.mark.parametrize("limit", [1, 999, 2**53])
async def test_limits_come_back_as_they_were_given(core: Core, limit: int) -> None:
    peer = await owner(core, 0)
    answer = await administer(peer, Retain("s", Limits(limit, limit, limit)))
    assert answer.stream is not None
    assert answer.stream.limits == Limits(limit, limit, limit)


@pytest.mark.parametrize("command", COMMANDS, ids=lambda command: type(command).__name__)
async def test_without_the_right_the_answer_is_that_of_an_unknown_stream(
    core: Core, command: Any
) -> None:
    await owner(core)
    may: frozenset[Verb] = frozenset({"create", "push", "pull", "subscribe"})
    core.access.add(Grant(who="anonymous", streams="*", may=may))
    stranger = core.peer("noise:aa", native_too=False)
    for peer in (core.peer("anonymous", native_too=False), stranger):
        known = await administer(peer, command)
        command.stream_name = "missing"
        assert await administer(peer, command) == known
        assert known == AdminResponse(7, Status.ERROR, "stream.unknown")
        command.stream_name = "s"
    described = await core.peer().ask("stream", native.DescribeRequest(1, "s"))
    assert described[0].stream.retain_entries_max is None
    assert described[0].stream.partitions[0].first_index == 0


async def test_a_malformed_request_is_an_invalid_request(core: Core) -> None:
    peer = await owner(core, 0)
    peer.answers.clear()
    peer.send("stream", b"\x0cstream_admin\x03\x01\x09\x00", b"\x0cstream_admin\x05\x01")
    answers = await peer.ask("stream", PushRequest(1, b""))
    assert answers == [ErrorResponse("Invalid request")]


async def test_a_failure_of_the_store_is_told(core: Core) -> None:
    for command in COMMANDS[1:]:
        peer = await owner(core, 1)
        core.store.faults.failing_syncs = 1
        answer = await administer(peer, command)
        assert answer == AdminResponse(7, Status.ERROR, "store.failed")
        core.clock.advance(1)
        await core.settle()
