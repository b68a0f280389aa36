"""The index service fails at each kind of message: each request has one outcome, none goes back."""

from collections.abc import Callable
from typing import Any, get_args

import pytest

from core_support import Core, Request, decode, with_core
from rillnode.actors.core.streams.context import StreamRemoved
from rillnode.actors.core.streams.index_service import IndexService
from rillnode.actors.engine.faults import When
from rillnode.actors.log import LoadIndex, SaveIndex, StoreHealth
from rillnode.codecs import native
from rillnode.codecs.routing.routes import WireMessage
from rillnode.codecs.routing.stream import (
    ErrorResponse,
    GetIndexRequest,
)
from rillnode.node.simulation.leftovers import remembered
from rillnode.testing import fail

at_both_times = pytest.mark.parametrize("when", get_args(When))

REQUESTS: dict[str, Callable[[int], Request]] = {
    "load": lambda number: native.LoadIndexRequest(number, "c", "s", 0),
    "save": lambda number: native.SaveIndexRequest(number, "c", "s", 0, 9),
    "list": lambda number: native.ListIndexesRequest(number, "s", "", 0, ""),
    "get": lambda _: GetIndexRequest("c", "s"),
}


def save(number: int, index: int) -> Request:
    return native.SaveIndexRequest(number, "c", "s", 0, index)


def decode_answer(answer: WireMessage) -> Any:
    return decode(answer.payload)


async def with_saved(core: Core) -> Any:
    peer = core.peer()
    await peer.ask("stream", native.OpenRequest(1, "s", 1))
    assert await peer.ask("stream_index", save(2, 5)) == [native.SavedIndexResponse(2, 5)]
    return peer


@at_both_times
@pytest.mark.parametrize("request_name", REQUESTS)
def test_a_request_that_it_fails_at_has_one_outcome(request_name: str, when: When) -> None:
    async def test(core: Core) -> None:
        peer = await with_saved(core)
        with fail(IndexService, when=when) as fault:
            answers = await peer.ask("stream_index", REQUESTS[request_name](7))
        assert fault.hits == 1
        assert len(answers) == 1
        if when == "before":
            assert isinstance(answers[0], native.Failure | ErrorResponse)
        (found,) = await peer.ask("stream_index", REQUESTS["load"](8))
        assert found.index in (5, 9)
        assert await peer.ask("stream_index", save(9, 12)) == [native.SavedIndexResponse(9, 12)]
        assert list(remembered(core.system)) == []

    with_core(test)


@at_both_times
@pytest.mark.parametrize(("operation", "request_name"), [(LoadIndex, "load"), (SaveIndex, "save")])
def test_an_operation_that_it_fails_at_costs_those_under_way_an_answer_each(
    operation: type[Any], request_name: str, when: When, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def test(core: Core) -> None:
        peer = await with_saved(core)
        core.context.positions.look_again()
        read = core.store.read

        def later(asked: Any) -> bool:
            if read(asked):
                core.complete(asked)
            return False

        monkeypatch.setattr(core.store, "read", later)
        requests = [REQUESTS[request_name](number) for number in (7, 8, 9)]
        with fail(IndexService, operation, when=when) as fault:
            answers = await peer.ask("stream_index", *requests)
        assert fault.hits == 1
        assert sorted(answer.request_id for answer in answers) == [7, 8, 9]
        (found,) = await peer.ask("stream_index", REQUESTS["load"](10))
        assert found.index == (9 if request_name == "save" else 5)
        assert await peer.ask("stream_index", save(11, 6)) == [
            native.SavedIndexResponse(11, max(6, found.index))
        ]
        assert list(remembered(core.system)) == []

    with_core(test)


def test_a_save_under_way_goes_on_though_its_instance_is_gone_and_none_goes_back(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async def test(core: Core) -> None:
        peer = await with_saved(core)
        submit, held = core.store.submit, list[Any]()
        monkeypatch.setattr(core.store, "submit", held.append)
        assert await peer.ask("stream_index", save(7, 50)) == []
        with fail(IndexService, StoreHealth):
            # Whatever it fails at: the instance that waits for the save is replaced.
            core.system.post(core.indexes, StoreHealth(writable=True))
            await core.settle()
        (answer,) = map(decode_answer, peer.answers)
        assert (answer.request_id, answer.code) == (7, "actor.failed")
        # What is not durable yet is told to nobody, and nobody saves less meanwhile.
        assert await peer.ask("stream_index", save(8, 20)) == []
        monkeypatch.setattr(core.store, "submit", submit)
        for operation in held:
            submit(operation)
        await core.settle()
        assert list(map(decode_answer, peer.answers)) == [native.SavedIndexResponse(8, 50)]
        assert await peer.ask("stream_index", REQUESTS["load"](9)) == [
            native.SavedIndexResponse(9, 50)
        ]
        assert list(remembered(core.system)) == []

    with_core(test)


@at_both_times
def test_a_removal_that_it_fails_at_is_noticed_all_the_same(when: When) -> None:
    async def test(core: Core) -> None:
        peer = await with_saved(core)
        with fail(IndexService, StreamRemoved, when=when) as fault:
            await peer.ask("stream", native.RemoveRequest(7, "s"))
        assert fault.hits == 1
        await peer.ask("stream", native.OpenRequest(8, "s", 1))
        (found,) = await peer.ask("stream_index", REQUESTS["load"](9))
        assert found.index is None

    with_core(test)
