"""Saved positions: what is told of them is durable, and no failure makes one go back."""

import asyncio
from typing import Any, get_args

import pytest

from core_support import Core, decode, encode, with_core
from rillnode.actors.core.streams import index
from rillnode.actors.core.streams.context import StreamRemoved
from rillnode.actors.core.streams.index_service import AskPosition, IndexService, Position
from rillnode.actors.engine.faults import When
from rillnode.actors.log import (
    ReadOperation,
    SavedIndexKey,
    SaveIndex,
    StoreHealth,
    StreamRecord,
)
from rillnode.codecs import native
from rillnode.codecs.errors import ActorError, StoreError
from rillnode.codecs.routing.stream import (
    ErrorResponse,
    GetIndexRequest,
    IndexResponse,
    SaveIndexRequest,
)
from rillnode.testing import fail

KEY = SavedIndexKey("s", 0, "c")

at_both_times = pytest.mark.parametrize("when", get_args(When))


async def save(peer: Any, position: int, number: int = 1) -> Any:
    (answer,) = await peer.ask(
        "stream_index", native.SaveIndexRequest(number, "c", "s", 0, position)
    )
    return answer


async def load(peer: Any, number: int = 2) -> Any:
    (answer,) = await peer.ask("stream_index", native.LoadIndexRequest(number, "c", "s", 0))
    return answer


def held_back(core: Core, monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """Keep what is submitted to the store from it."""
    held: list[Any] = []
    monkeypatch.setattr(core.store, "submit", held.append)
    return held


@at_both_times
@pytest.mark.parametrize("operation", [AskPosition, SaveIndex])
async def test_an_actor_that_asks_has_one_outcome(
    core: Core, operation: type[Any], when: When
) -> None:
    asked = AskPosition(KEY, 4)
    with fail(IndexService, operation, when=when) as fault:
        outcome = await asyncio.gather(
            core.system.ask(core.indexes, asked, 5), return_exceptions=True
        )
    assert fault.hits == 1
    if outcome[0] == Position(4):
        assert when == "after"
    else:
        assert isinstance(outcome[0], ActorError)
        assert outcome[0].code == "actor.failed"
    assert await core.system.ask(core.indexes, asked, 5) == Position(4)


@at_both_times
@pytest.mark.parametrize(
    "news",
    [
        StreamRemoved(StreamRecord(name="s", id=1)),
        StoreHealth(writable=True),
    ],
    ids=lambda one: type(one).__name__,
)
async def test_news_that_it_fails_at_cost_nobody_a_position(
    core: Core, news: StreamRemoved | StoreHealth, when: When
) -> None:
    peer = core.peer()
    await save(peer, 5)
    with fail(IndexService, type(news), when=when) as fault:
        core.system.post(core.indexes, news)
        await core.settle()
    assert fault.hits == 1
    assert await load(peer) == native.SavedIndexResponse(2, 5)
    assert await save(peer, 6) == native.SavedIndexResponse(1, 6)


async def test_nothing_is_answered_before_it_is_durable(
    core: Core, monkeypatch: pytest.MonkeyPatch
) -> None:
    peer = core.peer()
    await save(peer, 1)
    submit = core.store.submit
    held = held_back(core, monkeypatch)
    peer.answers.clear()
    for number, position in enumerate([5, 3, 9], 1):
        peer.send("stream_index", encode(native.SaveIndexRequest(number, "c", "s", 0, position)))
    peer.send("stream_index", encode(native.LoadIndexRequest(4, "c", "s", 0)))
    await core.settle()
    assert peer.answers == []
    monkeypatch.setattr(core.store, "submit", submit)
    for operation in held:
        submit(operation)
    await core.settle()
    assert len(peer.answers) == 4
    # Those who waited have the highest that any of them wanted, of one write or two.
    assert (await load(peer)).index == 9
    assert len(held) == 1


async def test_what_is_saved_together_is_of_one_stream(
    core: Core, monkeypatch: pytest.MonkeyPatch
) -> None:
    peer = core.peer()
    (opened,) = await peer.ask("stream", native.OpenRequest(1, "s", 1))
    there, gone = opened.stream.created_at, opened.stream.created_at - 1
    await save(peer, 1)
    submit = core.store.submit
    held = held_back(core, monkeypatch)
    peer.answers.clear()
    for number, (position, created_at) in enumerate([(2, there), (3, there), (9, gone)], 1):
        request = native.SaveIndexRequest(number, "c", "s", 0, position, created_at)
        peer.send("stream_index", encode(request))
    await core.settle()
    monkeypatch.setattr(core.store, "submit", submit)
    for operation in held:
        submit(operation)
    await core.settle()
    first, last, refused = sorted(
        (decode(one.payload) for one in peer.answers), key=lambda answer: answer.request_id
    )
    assert (first.index, last.index, refused.code) == (2, 3, "stream.removed")
    assert (await load(peer)).index == 3


async def test_a_save_that_failed_leaves_the_position_to_be_asked_for(
    core: Core, monkeypatch: pytest.MonkeyPatch
) -> None:
    peer = core.peer()
    await save(peer, 5)
    submit = core.store.submit

    def refuse(operation: Any) -> None:
        operation.error = StoreError("store.full", "no room")
        core.complete(operation)

    monkeypatch.setattr(core.store, "submit", refuse)
    answers = await peer.ask(
        "stream_index", *(native.SaveIndexRequest(number, "c", "s", 0, 9) for number in range(100))
    )
    assert {answer.code for answer in answers} == {"store.full"}
    assert len(answers) == 100
    monkeypatch.setattr(core.store, "submit", submit)
    assert await load(peer) == native.SavedIndexResponse(2, 5)
    assert await save(peer, 6) == native.SavedIndexResponse(1, 6)


def test_only_so_many_positions_are_remembered(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(index, "KNOWN_MAX", 3)

    async def test(core: Core) -> None:
        peer = core.peer()
        for number in range(10):
            await peer.ask("stream_index", native.SaveIndexRequest(1, f"c{number}", "s", 0, number))
        looks: list[object] = []
        read = core.store.read

        def counted(operation: ReadOperation) -> bool:
            looks.append(operation)
            return read(operation)

        monkeypatch.setattr(core.store, "read", counted)
        for number in (9, 8, 7):
            await peer.ask("stream_index", native.LoadIndexRequest(1, f"c{number}", "s", 0))
        assert looks == []
        for number in range(10):
            request = native.LoadIndexRequest(1, f"c{number}", "s", 0)
            assert await peer.ask("stream_index", request) == [native.SavedIndexResponse(1, number)]

    with_core(test)


async def test_ockams_clients_are_told_in_their_own_words(core: Core) -> None:
    peer = core.peer(native_too=False)
    await peer.ask("stream_index", SaveIndexRequest("c", "s", 3))
    get = GetIndexRequest("c", "s")
    with fail(IndexService):
        (answer,) = await peer.ask("stream_index", get)
    assert isinstance(answer, ErrorResponse)
    (answer,) = await peer.ask("stream_index", get)
    assert isinstance(answer, IndexResponse)
    assert answer.index == 3
