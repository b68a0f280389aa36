"""The directory: questions of tasks, logouts, and what is known after a restart."""

from collections.abc import Awaitable, Callable
from functools import partial
from typing import Any

import msgspec

from core_support import Core
from rillnode.actors.engine.system import Cell
from rillnode.actors.log import (
    FindStream,
    GetRecord,
    ListStreams,
    PutRecord,
    PutStream,
    StreamRecord,
)
from rillnode.actors.streamr.catalogue import Catalogue
from rillnode.actors.streamr.directory import Directory, Done, LoadDirectory, StoreRevocations
from rillnode.actors.streamr.revocations import WHOLE_LIST
from rillnode.actors.streamr.sessions import Sessions, SessionSettings
from rillnode.codecs.api_keys import hash_of
from rillnode.codecs.errors import RequestError

Ask = Callable[[object], Awaitable[Any]]


class Parts:
    """The parts of a node after a start."""

    def __init__(self, core: Core) -> None:
        self.core = core
        settings = SessionSettings(token_key=b"k" * 32, api_keys={hash_of("k"): "name"})
        self.sessions = Sessions(settings, core.clock, core.context.entropy, core.access.rights)
        self.catalogue = Catalogue(core.access)
        factory = partial(Directory, core.store, self.sessions, self.catalogue, core.clock)
        self.cell: Cell = core.system.spawn(factory)

    async def ask(self, message: object) -> Any:
        return await self.core.system.ask(self.cell, message, 5.0)


def put(core: Core, record: StreamRecord) -> None:
    core.store.submit(PutStream(record=record, reply_to=core.streams))


async def test_a_task_gets_its_question_back_completed(core: Core) -> None:
    parts = Parts(core)
    put(core, StreamRecord(name="a", partitions=2))
    await core.settle()
    question = FindStream(name="a")
    found: Any = await parts.ask(question)
    assert id(found) == id(question)
    assert found.record == StreamRecord(name="a", partitions=2, id=found.record.id)
    assert (await parts.ask(FindStream(name="b"))).record is None
    assert [one.name for one in (await parts.ask(ListStreams())).records] == ["a"]


async def test_streams_and_their_grants_are_known_after_loading(core: Core) -> None:
    for number in range(2_500):
        grants: dict[str, tuple[str, ...]] = {"eth:0x" + "aa" * 20: ("push",)}
        attributes = {"name": f"called {number}"}
        put(core, StreamRecord(name=f"s{number:04}", grants=grants, attributes=attributes))
    await core.settle()
    parts = Parts(core)
    assert not core.access.allows("eth:0x" + "aa" * 20, "push", "s2499")
    assert await parts.ask(LoadDirectory()) == Done()
    assert core.access.allows("eth:0x" + "aa" * 20, "push", "s2499")
    assert len(core.access.granted("eth:0x" + "aa" * 20)) == 2_500
    assert parts.catalogue.named("called 7") == {"s0007", "called 7"}


def logged_out(parts: Parts) -> str:
    """A token that was good, and is not any more."""
    token = parts.sessions.log_in_with_key("k", "").text
    parts.sessions.revoke(token)
    return token


def refused(parts: Parts, token: str) -> bool:
    try:
        parts.sessions.principal_of(token)
    except RequestError as error:
        return error.code == "session.invalid"
    return False


async def test_a_logout_is_known_after_a_restart(core: Core) -> None:
    parts = Parts(core)
    token = logged_out(parts)
    assert await parts.ask(StoreRevocations()) == Done()
    again = Parts(core)
    assert not refused(again, token)
    assert await again.ask(LoadDirectory()) == Done()
    assert refused(again, token)


async def test_logouts_of_another_node_on_the_store_are_not_overwritten(core: Core) -> None:
    one, other = Parts(core), Parts(core)
    tokens = [logged_out(one), logged_out(other), logged_out(one)]
    for parts in (one, other, one):
        assert await parts.ask(StoreRevocations()) == Done()
    again = Parts(core)
    assert await again.ask(LoadDirectory()) == Done()
    assert all(refused(again, token) for token in tokens)


async def test_many_logouts_of_an_earlier_version_are_written_anew_page_by_page(core: Core) -> None:
    ends = core.clock.now_ms() + 10**6
    tokens = [(n.to_bytes(8, "big"), 1, ends) for n in range(1_200)]
    whole = PutRecord(key=WHOLE_LIST, reply_to=core.streams)
    whole.value = msgspec.msgpack.encode((0, tokens))
    core.store.submit(whole)
    await core.settle()
    first, again = Parts(core), Parts(core)
    for parts in (first, again):
        assert await parts.ask(LoadDirectory()) == Done()
        assert len(parts.sessions.revocations) == 1_200
    old = GetRecord(key=WHOLE_LIST, value=b"?", reply_to=core.streams)
    core.store.read(old)
    await core.settle()
    assert old.value is None


async def test_a_damaged_list_is_told(core: Core) -> None:
    core.store.submit(PutRecord(key=WHOLE_LIST, value=b"?", reply_to=core.streams))
    await core.settle()
    assert (await Parts(core).ask(LoadDirectory())).error.code == "store.corrupt"


async def test_a_store_that_fails_is_told(core: Core) -> None:
    parts = Parts(core)
    token = logged_out(parts)
    core.store.faults.failing_syncs = 1
    done = await parts.ask(StoreRevocations())
    assert done.error.code == "store.failed"
    core.clock.advance(1)
    await core.settle()
    # The next logout stores it, too.
    assert await parts.ask(StoreRevocations()) == Done()
    again = Parts(core)
    assert await again.ask(LoadDirectory()) == Done()
    assert refused(again, token)
