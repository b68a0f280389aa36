"""A position that other nodes save, too: clients notice nothing, and it never goes back."""

from typing import Any

import pytest

from core_support import Core, with_core
from rillnode.actors.storage import Capability, SavedIndexKey, SaveIndex
from rillnode.actors.streams.index import FENCED_MAX
from rillnode.codecs import native
from rillnode.codecs.errors import StoreError
from rillnode.codecs.ockam.stream import GetIndexRequest, IndexResponse


class Fencing:
    """A store whose positions another node saves first: each of `theirs` before one of ours."""

    def __init__(self, core: Core, theirs: list[int]) -> None:
        self._core = core
        self._submit = core.store.submit
        self.theirs = theirs
        self.refused = 0

    def submit(self, operation: Any) -> None:
        if not isinstance(operation, SaveIndex) or not self.theirs:
            self._submit(operation)
            return
        index = self.theirs.pop(0)
        self._submit(SaveIndex(reply_to=self._core.streams, key=operation.key, index=index))
        operation.error = StoreError("store.fenced", "another node was first")
        self._core.complete(operation)
        self.refused += 1


@pytest.mark.parametrize(
    ("theirs", "ours", "found"),
    [([5], 7, 7), ([9], 7, 9), ([7], 7, 7), ([1, 2, 3, 4, 5], 7, 7), ([1, 2, 30], 7, 30)],
)
def test_a_position_that_another_node_has_saved_is_saved_again_if_it_is_beyond(
    monkeypatch: pytest.MonkeyPatch, theirs: list[int], ours: int, found: int
) -> None:
    async def test(core: Core) -> None:
        fencing = Fencing(core, [*theirs])
        monkeypatch.setattr(core.store, "submit", fencing.submit)
        peer = core.peer()
        save = native.SaveIndexRequest(1, "c", "s", 0, ours)
        assert await peer.ask("stream_index", save) == [native.SavedIndexResponse(1, found)]
        assert fencing.refused == len(theirs)
        load = native.LoadIndexRequest(2, "c", "s", 0)
        assert await peer.ask("stream_index", load) == [native.SavedIndexResponse(2, found)]

    with_core(test)


def test_a_record_with_0_is_made_only_where_no_node_has_one(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async def test(core: Core) -> None:
        fencing = Fencing(core, [9])
        monkeypatch.setattr(core.store, "submit", fencing.submit)
        peer = core.peer()
        get = GetIndexRequest("c", "s", "stream_index:request")
        found = IndexResponse("c", "s", 9, "stream_index:response")
        assert await peer.ask("stream_index", get) == [found]
        assert fencing.refused == 1
        # Another node's save counts for the next question, too.
        shared = property(lambda _: frozenset({Capability.SHARED}))
        monkeypatch.setattr(type(core.store), "capabilities", shared)
        theirs = SaveIndex(reply_to=core.streams, key=SavedIndexKey("s", 0, "c"), index=12)
        core.store.submit(theirs)
        await core.settle()
        found.index = 12
        assert await peer.ask("stream_index", get) == [found]

    with_core(test)


def test_who_is_never_first_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    async def test(core: Core) -> None:
        fencing = Fencing(core, list(range(FENCED_MAX + 1)))
        monkeypatch.setattr(core.store, "submit", fencing.submit)
        peer = core.peer()
        (failure,) = await peer.ask("stream_index", native.SaveIndexRequest(1, "c", "s", 0, 100))
        assert (failure.code, failure.retryable) == ("store.fenced", True)
        assert fencing.theirs == []
        # And the next one is tried as often.
        fencing.theirs += range(FENCED_MAX, 2 * FENCED_MAX)
        save = native.SaveIndexRequest(2, "c", "s", 0, 100)
        assert await peer.ask("stream_index", save) == [native.SavedIndexResponse(2, 100)]

    with_core(test)
