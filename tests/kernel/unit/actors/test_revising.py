"""Changes of a stream's record that other protocols ask the stream service for."""

import asyncio
from typing import Any

import msgspec

from core_support import Core, with_core
from coroutines import run_with
from rillnode.actors.core.quotas import Quota
from rillnode.actors.core.streams.revising import Revise, Revised, ReviseStream
from rillnode.actors.core.streams.rules import StreamRule
from rillnode.actors.log import StreamRecord
from rillnode.codecs import native
from rillnode.codecs.errors import RequestError


async def revise(core: Core, name: str, change: Revise, principal: str = "owner") -> Revised:
    revised: Revised = await core.system.ask(core.streams, ReviseStream(name, principal, change), 5)
    return revised


def grown(record: StreamRecord) -> StreamRecord:
    return msgspec.structs.replace(record, partitions=record.partitions + 1)


def refuse(_: StreamRecord) -> StreamRecord:
    raise RequestError("no", "no")


async def test_a_stream_is_made_changed_and_removed(core: Core) -> None:
    made = await revise(core, "s", lambda record: record)
    assert made.record is not None
    assert (made.record.name, made.record.owner, made.record.partitions) == ("s", "owner", 1)
    assert made.record.id > 0
    changed = await revise(core, "s", grown)
    assert changed.record == grown(made.record)
    assert await revise(core, "s", lambda record: record) == changed
    assert await revise(core, "s", lambda _: None) == Revised()
    # What there is not, is nothing to be removed.
    assert await revise(core, "s", lambda _: None) == Revised()
    again = await revise(core, "s", lambda record: record)
    assert again.record is not None
    assert again.record.id > made.record.id


async def test_a_refusal_changes_nothing(core: Core) -> None:
    refused = await revise(core, "s", refuse)
    assert refused.error is not None
    assert refused.error.code == "no"
    peer = core.peer()
    (answer,) = await peer.ask("stream", native.DescribeRequest(1, "s"))
    assert isinstance(answer, native.Failure)


async def test_no_change_is_lost_to_another_at_the_same_time(core: Core) -> None:
    peer = core.peer()
    changes = [revise(core, "s", grown) for _ in range(20)]
    everything = asyncio.gather(*changes)
    peer.send("stream", native.encode(native.OpenRequest(1, "s", 2)))
    revised = await everything
    assert [one.error for one in revised] == [None] * 20
    last = await revise(core, "s", lambda record: record)
    assert last.record is not None
    assert last.record.partitions >= 21


async def test_each_revision_runs_once_when_it_changes_something(core: Core) -> None:
    seen: list[int] = []

    def once(record: StreamRecord) -> StreamRecord:
        seen.append(record.id)
        if record.id:
            raise RequestError("exists", "exists")
        return record

    assert (await revise(core, "s", once)).error is None
    assert seen == [0]
    error = (await revise(core, "s", once)).error
    assert error is not None
    assert error.code == "exists"


def test_quotas_and_rules_hold_for_revisions() -> None:
    async def test(core: Core) -> None:
        def wide(record: StreamRecord) -> StreamRecord:
            return msgspec.structs.replace(record, partitions=3)

        code: Any = (await revise(core, "small", wide)).error
        assert code.code == "stream.invalid"
        assert (await revise(core, "a", wide)).error is None
        over: Any = (await revise(core, "b", wide)).error
        assert over.code == "quota.streams"
        assert (await revise(core, "a", lambda _: None)).error is None
        made = await revise(core, "b", wide)
        assert made.record is not None
        assert made.record.retention.entries_max == 9

    rules = [
        StreamRule(name="small", partitions_max=2),
        StreamRule(
            name="*",
            retention=msgspec.structs.replace(StreamRule(name="x").retention, entries_max=9),
        ),
    ]
    with_core(test, quotas=[Quota(who="owner", streams_max=1)], rules=rules)


@run_with(quotas=[Quota(who="owner", streams_max=1)])
async def test_a_failing_store_is_told(core: Core) -> None:
    core.store.faults.failing_syncs = 1
    failed: Any = (await revise(core, "s", lambda record: record)).error
    assert failed.code == "store.failed"


async def test_who_is_told_of_streams_hears_of_revisions(core: Core) -> None:
    made = await revise(core, "s", lambda record: record)
    assert made.record is not None
    peer = core.peer()
    address = native.OpenRequest(1, "s", 1)
    (answer,) = await peer.ask("stream", address)
    assert isinstance(answer, native.StreamResponse)
    await revise(core, "s", lambda _: None)
    (gone,) = await peer.ask("stream", native.DescribeRequest(2, "s"))
    assert isinstance(gone, native.Failure)
