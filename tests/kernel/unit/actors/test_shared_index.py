"""A position that other nodes save, too: clients notice nothing, and it never goes back."""

from typing import Any

import pytest

from core_support import Core
from rillnode.actors.log import SavedIndexKey, SaveIndex
from rillnode.codecs import native
from rillnode.codecs.routing.stream import GetIndexRequest, IndexResponse


class Others:
    """A store whose positions others save first: the next of `theirs` before ours."""

    def __init__(self, core: Core, monkeypatch: pytest.MonkeyPatch, theirs: list[int]) -> None:
        self._submit = core.store.submit
        self._highest = 0
        self.theirs = theirs
        monkeypatch.setattr(core.store, "submit", self.submit)
        core.share_store()

    def submit(self, operation: Any) -> None:
        if isinstance(operation, SaveIndex):
            self._highest = max(self._highest, *self.theirs[:1], operation.index)
            del self.theirs[:1]
            operation.index = self._highest
        self._submit(operation)


@pytest.mark.parametrize(("theirs", "ours", "found"), [(5, 7, 7), (9, 7, 9), (7, 7, 7)])
async def test_the_highest_position_that_any_node_saves_is_saved(
    core: Core, monkeypatch: pytest.MonkeyPatch, theirs: int, ours: int, found: int
) -> None:
    Others(core, monkeypatch, [theirs])
    peer = core.peer()
    save = native.SaveIndexRequest(1, "c", "s", 0, ours)
    assert await peer.ask("stream_index", save) == [native.SavedIndexResponse(1, found)]
    load = native.LoadIndexRequest(2, "c", "s", 0)
    assert await peer.ask("stream_index", load) == [native.SavedIndexResponse(2, found)]


async def test_a_record_with_0_is_made_only_where_no_node_has_one(
    core: Core, monkeypatch: pytest.MonkeyPatch
) -> None:
    others = Others(core, monkeypatch, [9])
    peer = core.peer()
    get = GetIndexRequest("c", "s", "stream_index:request")
    found = IndexResponse("c", "s", 9, "stream_index:response")
    assert await peer.ask("stream_index", get) == [found]
    assert others.theirs == []
    # Another node's save counts for the next question, too.
    theirs = SaveIndex(reply_to=core.streams, key=SavedIndexKey("s", 0, "c"), index=12)
    core.store.submit(theirs)
    await core.settle()
    found.index = 12
    assert await peer.ask("stream_index", get) == [found]


async def test_a_lower_position_is_answered_with_what_another_node_has_saved(
    core: Core, monkeypatch: pytest.MonkeyPatch
) -> None:
    Others(core, monkeypatch, [])
    peer = core.peer()
    save = native.SaveIndexRequest(1, "c", "s", 0, 7)
    assert await peer.ask("stream_index", save) == [native.SavedIndexResponse(1, 7)]
    theirs = SaveIndex(reply_to=core.streams, key=SavedIndexKey("s", 0, "c"), index=12)
    core.store.submit(theirs)
    await core.settle()
    lower = native.SaveIndexRequest(2, "c", "s", 0, 5)
    assert await peer.ask("stream_index", lower) == [native.SavedIndexResponse(2, 12)]
