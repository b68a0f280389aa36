"""Tests that what others do with the store holds here, whatever fails meanwhile."""

from collections.abc import Awaitable, Callable
from functools import partial
from typing import Any, get_args

import pytest

from core_support import Core, with_core
from coroutines import handed_by, run_with
from rillnode.actors.core.quotas import Quota
from rillnode.actors.core.streams import following
from rillnode.actors.core.streams.context import StreamRemoved
from rillnode.actors.core.streams.followers import Grown, Removed
from rillnode.actors.core.streams.following import StoreFollower
from rillnode.actors.core.streams.retention import RELIST_SECONDS, Recount, RetentionActor
from rillnode.actors.engine.cell import Cell
from rillnode.actors.engine.faults import When
from rillnode.actors.engine.worker import Worker
from rillnode.actors.log import (
    AnyWatch,
    Append,
    ListStreams,
    PutStream,
    StreamRecord,
    Watch,
    WatchRecords,
    log_id,
)
from rillnode.codecs import native
from rillnode.codecs.entries import pack_body
from rillnode.testing import fail

LOG = log_id(1, 0)


class Elsewhere:
    """Another node of the same store, and what the memory store of the tests is then.

    Attributes:
        records: who waits for records to change; one at a time.
        watches: who waits for logs to grow, one of each.
        told: what this node was told of streams.
    """

    def __init__(self, core: Core) -> None:
        self._core = core
        self.records: WatchRecords | None = None
        self.watches: dict[int, Watch] = {}
        self.told: list[StreamRecord | StreamRemoved] = []
        core.changes.append(self.told.append)
        core.share_store()
        store: Any = core.store
        store.watch = self.watch

    def watch(self, operation: AnyWatch) -> None:
        if isinstance(operation, WatchRecords):
            self.records = operation
        elif isinstance(operation, Watch):
            self.watches[operation.log] = operation

    async def change(self, changed: list[StreamRecord], removed: list[StreamRecord]) -> None:
        """Tell who waits for records."""
        news, self.records = self.records, None
        assert news is not None
        news.changed, news.removed = changed, removed
        self._core.complete(news)
        await self._core.settle()

    async def append(self, index: int) -> None:
        """Append an entry, and tell who waits for that."""
        self._core.store.submit(
            Append(log=LOG, count=1, body=pack_body([b"theirs"]), reply_to=self._core.streams)
        )
        await self._core.settle()
        watch = self.watches.get(LOG)
        if watch is not None and watch.index <= index:
            del self.watches[LOG]
            watch.next_index = index + 1
            self._core.complete(watch)
        await self._core.settle()


class Listener(Worker):
    """Notes what it is told of a log."""

    def __init__(self, told: list[Grown | Removed]) -> None:
        self._told = told

    def handle(self, message: Grown | Removed, sender: Cell | None) -> None:
        self._told.append(message)


def with_elsewhere(test: Callable[[Core, Elsewhere], Awaitable[None]], **options: Any) -> None:
    async def main(core: Core) -> None:
        await test(core, Elsewhere(core))

    with_core(main, **options)


here = handed_by(with_elsewhere)
elsewhere = handed_by(with_elsewhere, 1)


@pytest.mark.parametrize("when", get_args(When))
@pytest.mark.parametrize("name", ["Watch", "_Followed"])
async def test_who_follows_hears_of_what_others_append(
    here: Core, elsewhere: Elsewhere, name: str, when: When
) -> None:
    await here.peer().ask("stream", native.OpenRequest(1, "s", 1))
    told = list[Grown | Removed]()
    listener = here.system.spawn(partial(Listener, told))
    with fail(StoreFollower, getattr(following, name), when=when) as planted:
        here.context.followers.add(LOG, listener)
        await here.settle()
        await elsewhere.append(0)
    assert planted.hits == 1
    await elsewhere.append(1)
    assert told[-1] == Grown(2)
    here.context.followers.remove(LOG, listener)
    told.clear()
    await elsewhere.append(2)
    assert elsewhere.watches == {}
    here.context.followers.add(LOG, listener)
    await here.settle()
    await elsewhere.append(3)
    assert told[-1] == Grown(4)


@pytest.mark.parametrize("when", get_args(When))
async def test_what_others_change_is_told_though_its_hearing_fails(
    here: Core, elsewhere: Elsewhere, when: When
) -> None:
    await here.peer().ask("stream", native.OpenRequest(1, "s", 1))
    told = list[Grown | Removed]()
    here.context.followers.add(LOG, here.system.spawn(partial(Listener, told)))
    elsewhere.told.clear()
    one, two = StreamRecord(name="t", id=2), StreamRecord(name="u", id=3)
    with fail(StoreFollower, WatchRecords, when=when) as planted:
        await elsewhere.change([one, two], [StreamRecord(name="s", id=1)])
    assert planted.hits == 1
    assert elsewhere.told == [StreamRemoved(StreamRecord(name="s", id=1)), one, two]
    assert told == [Removed(LOG)]
    # What one record fails at costs no other.
    elsewhere.told.clear()
    with fail(StoreFollower, following._Changed):  # pyright: ignore[reportPrivateUsage]
        await elsewhere.change([one, two], [])
    assert elsewhere.told == [two]
    await elsewhere.change([one], [])
    assert elsewhere.told == [two, one]


@pytest.mark.parametrize("when", get_args(When))
@pytest.mark.parametrize("message", [Recount, ListStreams])
@run_with(quotas=[Quota(who="noise:aa", bytes_max=1000)])
async def test_bytes_that_others_append_are_counted_though_that_fails_once(
    here: Core, elsewhere: Elsewhere, message: type, when: When
) -> None:
    peer = here.peer("noise:aa")
    for name in ("s", "t"):
        here.store.submit(
            PutStream(record=StreamRecord(name=name, owner="noise:aa"), reply_to=here.streams)
        )
    await here.settle()
    await elsewhere.change(
        [
            StreamRecord(name=name, id=number, owner="noise:aa")
            for number, name in ((1, "s"), (2, "t"))
        ],
        [],
    )
    usage = here.context.quotas.usage("noise:aa")
    assert usage is not None
    assert usage.kept_bytes == 0
    await elsewhere.append(0)
    with fail(RetentionActor, message, when=when) as planted:
        for _ in range(2):
            here.clock.advance(RELIST_SECONDS)
            await here.settle()
    assert planted.hits == 1
    assert usage.kept_bytes == len(b"theirs")
    assert peer.origin.reserved_bytes == 0


@run_with(quotas=[Quota(who="noise:aa", bytes_max=1000)])
async def test_where_nobody_else_appends_nothing_is_counted_again(
    core: Core, monkeypatch: pytest.MonkeyPatch
) -> None:
    await core.settle()
    asked, read = list[Any](), core.store.read

    def noting(operation: Any) -> bool:
        asked.append(operation)
        return read(operation)

    monkeypatch.setattr(core.store, "read", noting)
    core.clock.advance(10 * RELIST_SECONDS)
    await core.settle()
    assert asked == []
