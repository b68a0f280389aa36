"""The directory: questions of tasks, logouts, and what is known after a restart."""

from collections.abc import Awaitable, Callable
from functools import partial
from typing import Any

from core_support import Core, with_core
from rillnode.actors.storage import FindStream, ListStreams, PutStream, StreamRecord
from rillnode.actors.streamr.catalogue import Catalogue
from rillnode.actors.streamr.directory import Directory, Done, LoadDirectory, StoreRevocations
from rillnode.actors.streamr.sessions import Sessions, SessionSettings, hash_of
from rillnode.actors.system import Cell

Ask = Callable[[object], Awaitable[Any]]


class Parts:
    """What a node has of it after a start."""

    def __init__(self, core: Core) -> None:
        self.core = core
        settings = SessionSettings(token_key=b"k" * 32, api_keys={hash_of("k"): "name"})
        self.sessions = Sessions(settings, core.clock, core.context.entropy)
        self.catalogue = Catalogue(core.access)
        factory = partial(Directory, core.store, self.sessions, self.catalogue)
        self.cell: Cell = core.system.spawn(factory)

    async def ask(self, message: object) -> Any:
        return await self.core.system.ask(self.cell, message, 5.0)


def put(core: Core, record: StreamRecord) -> None:
    core.store.submit(PutStream(record=record, reply_to=core.streams))


def test_a_task_gets_its_question_back_completed() -> None:
    async def test(core: Core) -> None:
        parts = Parts(core)
        put(core, StreamRecord(name="a", partitions=2))
        await core.settle()
        question = FindStream(name="a")
        found: Any = await parts.ask(question)
        assert id(found) == id(question)
        assert found.record == StreamRecord(name="a", partitions=2, id=found.record.id)
        assert (await parts.ask(FindStream(name="b"))).record is None
        assert [one.name for one in (await parts.ask(ListStreams())).records] == ["a"]

    with_core(test)


def test_streams_and_their_grants_are_known_after_loading() -> None:
    async def test(core: Core) -> None:
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

    with_core(test)


def test_a_logout_is_known_after_a_restart() -> None:
    async def test(core: Core) -> None:
        parts = Parts(core)
        token = parts.sessions.log_in_with_key("k", "").text
        parts.sessions.revoke(token)
        assert await parts.ask(StoreRevocations()) == Done()
        again = Parts(core)
        assert again.sessions.principal_of(token) == "apikey:name"
        assert await again.ask(LoadDirectory()) == Done()
        assert again.sessions.revocations.dump() == parts.sessions.revocations.dump()

    with_core(test)


def test_a_store_that_fails_is_told() -> None:
    async def test(core: Core) -> None:
        parts = Parts(core)
        core.store.faults.failing_syncs = 1
        done = await parts.ask(StoreRevocations())
        assert done.error.code == "store.failed"

    with_core(test)
