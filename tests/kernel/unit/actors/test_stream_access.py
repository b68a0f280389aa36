"""Tests that without a grant nobody learns of a stream: not by answer, place or cost."""

import logging
import tomllib
from collections.abc import Callable
from typing import Any, cast

import pytest

from core_support import Core, Peer, decode, encode, with_core
from rillnode.actors.core.access import Grant, Verb
from rillnode.actors.core.streams.context import stream_address
from rillnode.codecs import native
from rillnode.codecs.entries import pack_body
from rillnode.codecs.routing.stream import (
    CreatePartitionedRequest,
    CreateRequest,
    ErrorResponse,
    GetIndexRequest,
    GetPartitionIndexRequest,
    PullRequest,
    PushRequest,
    SaveIndexRequest,
    SavePartitionIndexRequest,
)
from rillnode.codecs.routing.stream_admin import (
    AdminRequest,
    AdminResponse,
    Delete,
    Describe,
    Limits,
    Retain,
    Trim,
)

STRANGER = "noise:aa"

Kind = tuple[Callable[[str], bytes], Callable[[str], Any]]
"""Where a request on a name goes, and the request."""


def service(_: str) -> bytes:
    return b"stream"


def indexes(_: str) -> bytes:
    return b"stream_index"


def stream(name: str) -> bytes:
    return stream_address(name, 0)


OCKAM: dict[str, Kind] = {
    "create": (service, lambda name: CreateRequest(name)),
    "create partitioned": (service, lambda name: CreatePartitionedRequest(name, 3)),
    "create too many": (service, lambda name: CreatePartitionedRequest(name, 2**40)),
    "push": (stream, lambda name: PushRequest(1, b"x")),
    "pull": (stream, lambda name: PullRequest(1, 0, 9)),
    "pull nothing": (stream, lambda name: PullRequest(1, 0, 0)),
    "misplaced create": (stream, lambda name: CreateRequest(name)),
    "get index": (indexes, lambda name: GetIndexRequest("c", name)),
    "save index": (indexes, lambda name: SaveIndexRequest("c", name, 1)),
    "get partition index": (indexes, lambda name: GetPartitionIndexRequest("c", name, 0)),
    "save partition index": (indexes, lambda name: SavePartitionIndexRequest("c", name, 0, 1)),
    "admin describe": (service, lambda name: AdminRequest(1, Describe(name))),
    "admin delete": (service, lambda name: AdminRequest(1, Delete(name))),
    "admin trim": (service, lambda name: AdminRequest(1, Trim(name, 0, 1))),
    "admin retain": (service, lambda name: AdminRequest(1, Retain(name, Limits()))),
    "admin retain nothing": (service, lambda name: AdminRequest(1, Retain(name, Limits(0)))),
}
NATIVE: dict[str, Kind] = {
    "append": (stream, lambda name: native.AppendRequest(1, 1, pack_body([b"x"]))),
    "append what is no body": (stream, lambda name: native.AppendRequest(1, 9, b"x")),
    "open producer": (stream, lambda name: native.OpenProducerRequest(1, "m7")),
    "open producer of no name": (stream, lambda name: native.OpenProducerRequest(1, "")),
    "read": (stream, lambda name: native.ReadRequest(1, 0, 9, 999)),
    "locate": (stream, lambda name: native.LocateRequest(1, 5, True)),
    "search": (stream, lambda name: native.SearchRequest(1, 0, 9, 9, "a")),
    "search for what is no condition": (stream, lambda name: native.SearchRequest(1, 0, 9, 9, "(")),
    "follow": (stream, lambda name: native.SubscribeRequest(1, 0, 999, where="a")),
    "follow what is no condition": (
        stream,
        lambda name: native.SubscribeRequest(1, 0, 999, where="("),
    ),
    "subscribe": (stream, lambda name: native.SubscribeRequest(1, 0, 999)),
    "open": (service, lambda name: native.OpenRequest(1, name, 1)),
    "open wide": (service, lambda name: native.OpenRequest(1, name, 1_024)),
    "describe": (service, lambda name: native.DescribeRequest(1, name)),
    "list": (service, lambda name: native.ListRequest(1, name, "")),
    "list after": (service, lambda name: native.ListRequest(1, "", name)),
    "trim": (service, lambda name: native.TrimRequest(1, name, 0, 1)),
    "trim beyond": (service, lambda name: native.TrimRequest(1, name, 9, 1)),
    "remove": (service, lambda name: native.RemoveRequest(1, name)),
    "load index": (indexes, lambda name: native.LoadIndexRequest(1, "c", name, 0)),
    "save index": (indexes, lambda name: native.SaveIndexRequest(1, "c", name, 0, 1)),
    "list indexes": (indexes, lambda name: native.ListIndexesRequest(1, name, "", 0, "")),
    "list indexes after": (indexes, lambda name: native.ListIndexesRequest(1, "", name, 0, "")),
}
KINDS = [
    *((kind, False) for kind in OCKAM.items()),
    *((kind, True) for kind in (OCKAM | NATIVE).items()),
]


async def make_secret(core: Core) -> None:
    """A stream with an entry, a position and a live actor, which the stranger may not know."""
    owner = core.peer()
    await owner.ask("stream", CreateRequest("secret"))
    await owner.ask(b"ST_S_0_secret", PushRequest(1, b"x"))
    await owner.ask("stream_index", SaveIndexRequest("c", "secret", 1))
    # Without any grant no identity may connect.
    core.access.add(Grant(who=STRANGER, streams="own*", may=frozenset({"push", "pull"})))


class Turns:
    """Counts what a core does: operations of the store, and messages handled by actors."""

    def __init__(self, core: Core, monkeypatch: pytest.MonkeyPatch) -> None:
        self.core = core
        self.operations = 0
        self.handled_before = 0
        read, submit = core.store.read, core.store.submit

        def counting_read(operation: Any) -> bool:
            self.operations += 1
            return read(operation)

        def counting_submit(operation: Any) -> None:
            self.operations += 1
            submit(operation)

        monkeypatch.setattr(core.store, "read", counting_read)
        monkeypatch.setattr(core.store, "submit", counting_submit)

    def start(self) -> None:
        self.operations = 0
        self.handled_before = self._handled()

    def spent(self) -> tuple[int, int]:
        return self.operations, self._handled() - self.handled_before

    def _handled(self) -> int:
        return sum(kind.handled for kind in self.core.system.stats().values())


async def answers_and_cost(peer: Peer, turns: Turns, kind: Kind, name: str) -> Any:
    where, request = kind
    turns.start()
    found = await peer.ask(where(name), request(name))
    routes = [(answer.onward_route, answer.return_route) for answer in peer.answers]
    hidden = str((found, routes)).replace(name, "NAME")
    return hidden, turns.spent()


@pytest.mark.parametrize(("named", "native_too"), KINDS, ids=lambda value: str(value)[:30])
@pytest.mark.parametrize("principal", [STRANGER, "anonymous"])
async def test_a_refused_stream_answers_as_an_unknown_one_and_costs_the_same(
    core: Core,
    named: tuple[str, Kind],
    native_too: bool,
    principal: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    await make_secret(core)
    peer = core.peer(principal, native_too=native_too)
    turns = Turns(core, monkeypatch)
    # Once for what the first request of a peer makes.
    await answers_and_cost(peer, turns, named[1], "absent")
    unknown = await answers_and_cost(peer, turns, named[1], "absent")
    assert await answers_and_cost(peer, turns, named[1], "secret") == unknown
    # Nor when the stream's actor sleeps.
    for _ in range(3):
        core.clock.advance(61)
        await core.settle()
    assert await answers_and_cost(peer, turns, named[1], "secret") == unknown
    owner = core.peer()
    described = (await owner.ask("stream", native.DescribeRequest(1, "secret")))[0].stream
    assert [part.next_index for part in described.partitions] == [1]


@pytest.mark.parametrize(
    "kind", ["append", "read", "locate", "search", "follow", "subscribe", "describe", "remove"]
)
async def test_the_order_of_refusals_tells_nothing(core: Core, kind: str) -> None:
    await make_secret(core)
    peer = core.peer(STRANGER)
    where, request = NATIVE[kind]
    names = ["absent", "secret", "absent", "absent", "secret", "absent"]
    for number, name in enumerate(names):
        asked = request(name)
        asked.request_id = number
        peer.send(where(name), encode(asked))
    await core.settle()
    answers = [decode(answer.payload) for answer in peer.answers]
    assert [answer.request_id for answer in answers] == list(range(6))
    told = zip(answers, names, strict=True)
    said = {(answer.code, answer.text.replace(name, "NAME")) for answer, name in told}
    assert len(said) == 1


@pytest.mark.parametrize(
    ("kind", "verb"),
    [("append", "push"), ("read", "pull"), ("subscribe", "subscribe"), ("describe", "pull"),
     ("remove", "admin")],
)  # fmt: skip
async def test_who_has_proved_to_be_somebody_is_told_the_grant_that_is_missing(
    core: Core, kind: str, verb: Verb
) -> None:
    """It does what it says, whatever is granted beside, and nothing of it is told to others."""
    await make_secret(core)
    where, request = NATIVE[kind]
    nobody = core.peer("anonymous")
    (answer,) = await nobody.ask(where("secret"), request("secret"))
    assert "[[grant]]" not in answer.text
    peer = core.peer(STRANGER)
    for other in (None, "push" if verb != "push" else "pull"):
        if other is not None:
            core.access.add(
                Grant(who=STRANGER, streams="secret", may=frozenset((cast(Verb, other),)))
            )
        if kind == "describe" and other is not None:
            continue  # any right lets its holder know of the stream
        (answer,) = await peer.ask(where("secret"), request("secret"))
        assert f"{STRANGER} may not {verb}" in answer.text
        lines = answer.text.partition("[[grant]]")[2]
        grant = tomllib.loads(lines)
        assert grant == {"who": STRANGER, "streams": "secret", "may": [verb]}
    core.access.add(Grant(who=STRANGER, streams=grant["streams"], may=frozenset(grant["may"])))
    (answer,) = await peer.ask(where("secret"), request("secret"))
    assert not isinstance(answer, native.Failure)


async def test_other_addresses_of_a_secret_stream_are_unknown_too(core: Core) -> None:
    await make_secret(core)
    peer = core.peer(STRANGER)
    read = native.ReadRequest(1, 0, 9, 999)
    found = [
        (await peer.ask(address, read))[0]
        for address in ("ST_S_0_secret", "ST_S_1_secret", "ST_S_x", "ST_S_0_%73ecret", "nobody")
    ]
    codes = [failure.code for failure in found]
    assert codes == ["stream.unknown"] * 2 + ["address.unknown"] * 3
    assert len({failure.text for failure in found[:2]}) == 1
    assert all("secret" not in failure.text for failure in found[2:])


def test_refusals_are_counted_and_logged(caplog: pytest.LogCaptureFixture) -> None:
    async def test(core: Core) -> None:
        await make_secret(core)
        peer = core.peer("anonymous", native_too=False)
        asked = ["create", "push", "get index", "save index", "admin delete"]
        for kind in asked:
            where, request = OCKAM[kind]
            await peer.ask(where("secret"), request("secret"))
        assert core.router.undelivered["refused"] == len(asked)

    with caplog.at_level(logging.INFO, "rillnode"):
        with_core(test)
    logged = [record for record in caplog.records if record.msg == "refused"]
    assert {record.__dict__["principal"] for record in logged} == {"anonymous"}
    assert [record.__dict__["stream"] for record in logged] == ["secret"] * 5


@pytest.mark.parametrize("kind", ["create", "get index", "misplaced create"])
async def test_the_services_say_error_with_one_text(core: Core, kind: str) -> None:
    await make_secret(core)
    peer = core.peer("anonymous", native_too=False)
    where, request = OCKAM[kind]
    answers = [await peer.ask(where(name), request(name)) for name in ("secret", "absent")]
    said = [] if kind == "misplaced create" else [ErrorResponse("Invalid request")]
    assert answers == [said, said]


async def test_lists_go_on_past_what_may_not_be_seen_without_naming_it(core: Core) -> None:
    owner = core.peer()
    hidden = [f"hidden-{number:04}" for number in range(native.LIST_MAX + 20)]
    names = [*hidden, *(f"own-{number:04}" for number in range(native.LIST_MAX + 5))]
    await owner.ask("stream", *(native.OpenRequest(1, name, 1) for name in names))
    saves = [native.SaveIndexRequest(1, "c", name, 0, 1) for name in names]
    await owner.ask("stream_index", *saves)
    core.access.add(Grant(who=STRANGER, streams="own*", may=frozenset({"pull"})))
    peer = core.peer(STRANGER)
    first = (await peer.ask("stream", native.ListRequest(1, "", "")))[0]
    assert [info.name for info in first.streams] == names[len(hidden) :][: native.LIST_MAX]
    assert first.next_after == first.streams[-1].name
    rest = (await peer.ask("stream", native.ListRequest(1, "", first.next_after)))[0]
    assert ([info.name for info in rest.streams], rest.next_after) == (names[-5:], "")
    first = (await peer.ask("stream_index", native.ListIndexesRequest(1, "", "", 0, "")))[0]
    assert first.last == first.indexes[-1]
    assert len(first.indexes) == native.LIST_MAX
    more = native.ListIndexesRequest(1, "", first.last.stream, 0, "c")
    rest = (await peer.ask("stream_index", more))[0]
    assert ([index.stream for index in rest.indexes], rest.last) == (names[-5:], None)
    nothing = await core.peer("noise:bb").ask("stream", native.ListRequest(1, "", ""))
    assert nothing == [native.ListResponse(1, [], "")]


async def test_names_that_no_stream_can_have_are_refused_and_not_remembered(core: Core) -> None:
    await make_secret(core)
    name = "n" * 100_000
    for peer in (core.peer(), core.peer(STRANGER)):
        for kind in ("describe", "trim", "remove", "admin delete", "load index"):
            where, request = (OCKAM | NATIVE)[kind]
            (answer,) = await peer.ask(where(name), request(name))
            said = answer.reason if isinstance(answer, AdminResponse) else answer.code
            assert said in ("stream.unknown", "index.invalid")
    remembered = core.access._cache  # pyright: ignore[reportPrivateUsage]
    assert max((len(stream) for _, stream in remembered), default=0) < 100


async def test_a_list_behind_a_partition_that_none_is_is_refused(core: Core) -> None:
    listing = native.ListIndexesRequest(1, "", "s", 2**32, "c")
    (refused,) = await core.peer().ask("stream_index", listing)
    assert refused.code == "index.invalid"


async def test_a_grant_for_every_name_needs_no_look_at_the_name(core: Core) -> None:
    assert core.access.sees_all("friend") is False
    core.peer()
    assert core.access.sees_all("friend")
    assert not core.access.sees_all(STRANGER)
    core.access.revoke("friend")
    assert not core.access.sees_all("friend")
