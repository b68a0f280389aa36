"""One log on JetStream as a store knows it, when its end is asked for while it grows."""

import asyncio
from types import SimpleNamespace
from typing import Any, cast

from rillnode.actors.storage.jetstream.catalog import Catalog
from rillnode.actors.storage.jetstream.frames import JournalFrame, LogFrame, encode
from rillnode.actors.storage.jetstream.key_index import KeyIndex
from rillnode.actors.storage.jetstream.log_view import LogView
from rillnode.actors.storage.jetstream.options import JetStreamOptions
from rillnode.actors.storage.jetstream.partition import Partition
from rillnode.actors.storage.jetstream.parts import Parts
from rillnode.actors.storage.jetstream.server import Message
from rillnode.actors.storage.layout import NEXT_STREAM_KEY, NUMBER, LogState
from rillnode.actors.storage.tail import TailCache
from rillnode.codecs.entries import EntryKind, encode_block, pack_body

LOG = 1 << 32


class Asked:
    """A server that answers each question for the log's end when it is told to."""

    def __init__(self) -> None:
        self.questions: list[asyncio.Future[Message | None]] = []

    def name_of_log(self, log: int) -> str:
        return f"{log:016x}"

    async def last(self, name: str) -> Message | None:
        question: asyncio.Future[Message | None] = asyncio.get_running_loop().create_future()
        self.questions.append(question)
        return await question

    def less(self, name: str) -> Exception:
        return AssertionError(f"{name} has less than it confirmed")


def message(sequence: int) -> Message:
    """The log's last message where each one has one entry."""
    block = encode_block(
        count=1, kind=EntryKind.BYTES, received_at=0, position=sequence - 1, body=pack_body([b"x"])
    )
    return Message(sequence, encode(LogFrame(b"t", sequence - 1, [block])))


def view_of(server: Asked, catalog: Catalog) -> LogView:
    return LogView(LOG, cast(Any, server), cast(Any, SimpleNamespace(catalog=catalog)))


async def asked(server: Asked, count: int) -> None:
    """Let all begin that can; so many questions have been asked then."""
    for _ in range(5):
        await asyncio.sleep(0)
    assert len(server.questions) == count


async def forgotten_between(
    server: Asked,
) -> tuple[LogView, asyncio.Task[LogState], asyncio.Task[LogState]]:
    """A view that was asked for the state before and after it was told to forget it."""
    view = view_of(server, Catalog(512))
    before = asyncio.create_task(view.state())
    await asked(server, 1)
    view.forget()
    after = asyncio.create_task(view.state())
    await asked(server, 2)
    return view, before, after


def test_who_asks_after_a_log_was_forgotten_gets_no_answer_from_before() -> None:
    async def run() -> None:
        server = Asked()
        view, before, after = await forgotten_between(server)
        server.questions[0].set_result(message(4))
        # Who has asked before is not kept waiting by those who write on.
        assert (await before).next_index == 4
        assert not view.known
        server.questions[1].set_result(message(5))
        assert (await after).next_index == 5
        assert view.known

    asyncio.run(run())


def test_an_answer_that_comes_late_does_not_undo_a_later_one() -> None:
    async def run() -> None:
        server = Asked()
        view, before, after = await forgotten_between(server)
        server.questions[1].set_result(message(5))
        assert (await after).next_index == 5
        server.questions[0].set_result(message(4))
        assert (await before).next_index == 5
        assert (view.known, view.last.sequence) == (True, 5)

    asyncio.run(run())


def test_a_stream_that_is_removed_while_its_log_is_read_leaves_nothing_of_it() -> None:
    async def run() -> None:
        server, catalog = Asked(), Catalog(512)
        view = view_of(server, catalog)
        reading = asyncio.create_task(view.state())
        await asked(server, 1)
        catalog.apply(1, JournalFrame(b"t", [], [(NEXT_STREAM_KEY, NUMBER.pack(2))]))
        view.remove()
        server.questions[0].set_result(message(4))
        assert (await reading).next_index == 0
        assert (await view.state()).next_index == 0

    asyncio.run(run())


def test_news_of_a_log_that_is_being_read_are_not_lost() -> None:
    """What this node has handed on is confirmed to its client then, who may read at once."""

    async def run() -> None:
        server = Asked()
        partition = partition_of(server)
        reading = asyncio.create_task(partition.view.state())
        await asked(server, 1)
        partition.told(5)
        await asked(server, 1)
        later = asyncio.create_task(partition.view.state())
        await asked(server, 2)
        for question, end in zip(server.questions, (4, 5), strict=True):
            question.set_result(message(end))
        await reading
        assert (await later).next_index == 5

    asyncio.run(run())


def nobody(log: int) -> None:
    """No other node owns a log."""


def partition_of(server: Asked) -> Partition:
    parts = Parts(
        options=JetStreamOptions(servers=()),
        server=cast(Any, server),
        gate=cast(Any, None),
        journal=cast(Any, SimpleNamespace(catalog=Catalog(512))),
        tail=TailCache(1_000_000),
        forwarding=cast(Any, SimpleNamespace(owner_of=nobody)),
        keys=KeyIndex(1_000_000, logs_max=10),
        token=lambda: b"token",
        tell=lambda log, sequence: None,
        done=lambda *operations: None,
    )
    return Partition(LOG, parts)
