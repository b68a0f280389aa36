"""Quotas: streams, bytes kept and bytes pushed of each principal, and nobody else disturbed."""

from dataclasses import replace
from functools import partial
from typing import Any

import pytest

from core_support import Core, Peer, with_core
from coroutines import run_with
from link_support import ManualClock
from rillnode.actors.core.access import NODE_PRINCIPAL, VERBS, Grant
from rillnode.actors.core.quotas import PRINCIPALS_MAX, Quota, Quotas
from rillnode.actors.core.streams import retention
from rillnode.actors.core.streams.retention import SWEEP_SECONDS, RetentionActor
from rillnode.actors.core.streams.revising import EnsureStream
from rillnode.actors.log import (
    NO_ENTRIES,
    LogExtent,
    Retention,
    StreamRecord,
    Trim,
    WriteOperation,
    log_id,
)
from rillnode.codecs import native
from rillnode.codecs.entries import pack_body
from rillnode.codecs.routing.stream import (
    CreateRequest,
    CreateResponse,
    ErrorResponse,
    PushConfirm,
    PushRequest,
    Status,
)

A, B = "noise:aa", "noise:bb"
OK, ERROR = Status.OK, Status.ERROR


def peers(core: Core, *, native_too: bool = True) -> tuple[Peer, Peer]:
    """Two peers that may do everything; the quotas of these tests are for the first."""
    for who in (A, B):
        core.access.add(Grant(who=who, streams="*", may=frozenset(VERBS)))
    return core.peer(A, native_too=native_too), core.peer(B, native_too=native_too)


async def push(peer: Peer, stream: str, *sizes: int) -> list[Status]:
    """Push entries of these sizes, each in a batch of its own."""
    answers: list[Any] = []
    for size in sizes:
        answers += await peer.ask(b"ST_S_0_" + stream.encode(), PushRequest(1, bytes(size)))
    return [answer.status for answer in answers]


def append(*sizes: int) -> native.AppendRequest:
    return native.AppendRequest(1, len(sizes), pack_body([bytes(size) for size in sizes]))


@run_with(quotas=[Quota(who=A, streams_max=2)])
async def test_streams_over_the_quota_are_not_created(core: Core) -> None:
    limited, free = peers(core)
    for name in ("a", "b"):
        assert await limited.ask("stream", CreateRequest(name)) == [CreateResponse(name)]
    assert await limited.ask("stream", CreateRequest("c")) == [ErrorResponse("Invalid request")]
    failure = (await limited.ask("stream", native.OpenRequest(1, "d", 1)))[0]
    assert failure.code == "quota.streams"
    # What is there may be opened, one's own and another's, and others may create.
    assert await free.ask("stream", CreateRequest("c")) == [CreateResponse("c")]
    for name in ("a", "c"):
        assert await limited.ask("stream", CreateRequest(name)) == [CreateResponse(name)]
    await limited.ask("stream", native.RemoveRequest(1, "c"))
    assert await limited.ask("stream", CreateRequest("e")) == [ErrorResponse("Invalid request")]
    await free.ask("stream", native.RemoveRequest(1, "a"))
    assert await limited.ask("stream", CreateRequest("e")) == [CreateResponse("e")]


@run_with(quotas=[Quota(who=A, streams_max=1)])
async def test_a_stream_that_could_not_be_stored_is_not_counted(core: Core) -> None:
    limited, _ = peers(core)
    core.store.faults.failing_syncs = 1
    assert await limited.ask("stream", CreateRequest("a")) == [ErrorResponse("Invalid request")]
    core.clock.advance(1)
    await core.settle()
    assert await limited.ask("stream", CreateRequest("b")) == [CreateResponse("b")]


@run_with(quotas=[Quota(who=A, bytes_max=100)])
async def test_bytes_are_charged_to_the_owner_whoever_pushes(core: Core) -> None:
    limited, free = peers(core)
    await limited.ask("stream", CreateRequest("a"), CreateRequest("b"))
    await free.ask("stream", CreateRequest("c"))
    assert await push(limited, "a", 60) == [OK]
    assert await push(free, "b", 30, 11) == [OK, ERROR]
    assert await push(limited, "a", 10, 1, 0) == [OK, ERROR, OK]
    assert await push(limited, "c", 500) == [OK]
    failure = (await limited.ask(b"ST_S_0_a", append(1)))[0]
    assert (failure.code, failure.retryable) == ("quota.bytes", False)
    assert core.router.undelivered["over_quota"] == 3


@run_with(quotas=[Quota(who=A, bytes_max=100)])
async def test_what_is_trimmed_or_removed_makes_room(core: Core) -> None:
    limited, _ = peers(core)
    await limited.ask("stream", CreateRequest("a"), CreateRequest("b"))
    assert await push(limited, "a", 50, 40, 20) == [OK, OK, ERROR]
    await limited.ask("stream", native.TrimRequest(1, "a", 0, 1))
    assert await push(limited, "a", 50, 20) == [OK, ERROR]
    await limited.ask("stream", native.RemoveRequest(1, "a"))
    assert await push(limited, "b", 100, 1) == [OK, ERROR]


@run_with(quotas=[Quota(who=A, bytes_max=100)])
async def test_what_retention_trims_makes_room(core: Core) -> None:
    limited, _ = peers(core)
    await limited.ask("stream", CreateRequest("a"))
    core.system.post(core.streams, EnsureStream("a", 1, Retention(entries_max=1)))
    assert await push(limited, "a", 50, 40, 20) == [OK, OK, ERROR]
    core.clock.advance(SWEEP_SECONDS + 0.1)
    assert await push(limited, "a", 50, 20) == [OK, ERROR]


@run_with(quotas=[Quota(who=A, bytes_max=100)])
async def test_bytes_on_their_way_count_and_failed_ones_do_not(core: Core) -> None:
    limited, _ = peers(core)
    await limited.ask("stream", CreateRequest("a"))
    core.store.faults.sync_seconds = 1.0
    assert await push(limited, "a", 60, 60) == [ERROR]
    core.store.faults.failing_syncs = 1
    core.clock.advance(1.1)
    await core.settle()
    core.store.faults.sync_seconds = 0.0
    core.clock.advance(1.1)
    await core.settle()
    assert await push(limited, "a", 100) == [OK]


async def test_bytes_of_before_the_start_count(core: Core) -> None:
    limited, _ = peers(core)
    await limited.ask("stream", CreateRequest("a"))
    await push(limited, "a", 90)
    restarted = Quotas([Quota(who=A, bytes_max=100)], core.clock)
    context = replace(core.context, quotas=restarted)
    core.system.spawn(partial(RetentionActor, context, core.holds))
    await core.settle()
    usage = restarted.usage(A)
    assert usage is not None
    assert (usage.streams, usage.kept_bytes) == ({"a"}, 90)
    refusal = restarted.admit_push(A, B, 11)
    assert refusal is not None
    assert refusal.code == "quota.bytes"
    assert restarted.admit_push(A, B, 10) is None


@run_with(quotas=[Quota(who=A, push_bytes_per_second=100)])
async def test_the_rate_is_kept_on_average_and_any_size_passes_in_time(core: Core) -> None:
    limited, free = peers(core)
    await limited.ask("stream", CreateRequest("a"))
    # A second's worth at once, the last of it larger than what was left.
    assert await push(limited, "a", 90, 30, 1) == [OK, OK, ERROR]
    assert await push(free, "a", 1_000) == [OK]
    failure = (await limited.ask(b"ST_S_0_a", append(1)))[0]
    assert (failure.code, failure.retryable) == ("quota.rate", True)
    core.clock.advance(0.19)
    assert await push(limited, "a", 1) == [ERROR]
    core.clock.advance(0.02)
    assert await push(limited, "a", 1_000, 1) == [OK, ERROR]
    core.clock.advance(9.9)
    assert await push(limited, "a", 1) == [ERROR]
    core.clock.advance(100.0)
    assert await push(limited, "a", 99, 2, 1) == [OK, OK, ERROR]


@run_with(quotas=[Quota(who=A, push_bytes_per_second=100)])
async def test_pushes_of_one_batch_are_admitted_together_and_confirmed_in_order(core: Core) -> None:
    limited, _ = peers(core, native_too=False)
    await limited.ask("stream", CreateRequest("a"))
    requests = [PushRequest(number, bytes(50)) for number in range(4)]
    answers = await limited.ask(b"ST_S_0_a", *requests)
    assert answers == [PushConfirm(number, OK, number) for number in range(4)]
    answers = await limited.ask(b"ST_S_0_a", *requests)
    assert answers == [PushConfirm(number, ERROR, 0) for number in range(4)]


def test_the_first_quota_that_matches_counts_and_each_principal_has_its_own() -> None:
    quotas = Quotas(
        [Quota(who=A, streams_max=1), Quota(who="noise:*", streams_max=2)], ManualClock()
    )
    assert [quotas.admit_stream(A, name) for name in "ab"] == [True, False]
    for principal in (B, "noise:cc"):
        assert [quotas.admit_stream(principal, name) for name in "abc"] == [True, True, False]
    for principal in ("anonymous", NODE_PRINCIPAL):
        assert quotas.usage(principal) is None
    assert Quotas([Quota(who="*", streams_max=1)], ManualClock()).usage(NODE_PRINCIPAL) is None


def test_principals_that_own_nothing_are_forgotten() -> None:
    quotas = Quotas([Quota(who="*", streams_max=9, push_bytes_per_second=1)], ManualClock())
    assert quotas.admit_stream("owner", "s")
    for number in range(PRINCIPALS_MAX + 100):
        quotas.admit_push("", f"noise:{number}", 1)
    assert len(quotas._usages) <= PRINCIPALS_MAX + 1  # pyright: ignore[reportPrivateUsage]
    usage = quotas.usage("owner")
    assert usage is not None
    assert usage.streams == {"s"}


def test_what_an_append_told_is_not_overwritten_by_an_older_listing() -> None:
    quotas = Quotas([Quota(who="*", bytes_max=100)], ManualClock())
    record = StreamRecord(name="s", id=1, partitions=2, owner=A)
    assert quotas.admit_push(A, A, 40) is None
    quotas.appended(A, 1 << 32, 40, 70)
    quotas.found(record, [LogExtent(0, 1, 30), LogExtent(0, 1, 20)])
    usage = quotas.usage(A)
    assert usage is not None
    assert (usage.kept_bytes, usage.pending_bytes) == (90, 0)
    quotas.removed(record)
    assert (usage.kept_bytes, usage.kept, usage.streams) == (0, {}, set())


def test_what_was_read_or_written_before_a_stream_was_removed_does_not_count(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    quotas = Quotas([Quota(who=A, streams_max=1, bytes_max=100)], ManualClock())
    record = StreamRecord(name="s", id=1, owner=A)
    log, kept = log_id(1, 0), LogExtent(0, 1, 90)
    assert quotas.admit_push(A, A, 20) is None
    quotas.found(record, [kept])
    quotas.removed(record)
    for by_others in (False, True):
        quotas.found(record, [kept], by_others=by_others)
    quotas.keeps(A, log, kept)
    quotas.appended(A, log, 20, 90)
    usage = quotas.usage(A)
    assert usage is not None
    assert (usage.streams, usage.kept, usage.pending_bytes) == (set(), {}, 0)
    # One of the same name, made later, has another id.
    quotas.found(StreamRecord(name="s", id=2, owner=A), [kept])
    assert (usage.streams, usage.kept_bytes) == ({"s"}, 90)
    # They are not remembered for ever.
    monkeypatch.setattr("rillnode.actors.core.quotas.REMOVED_MAX", 2)
    for number in (2, 3, 4):
        quotas.removed(StreamRecord(name="s", id=number, owner=A))
    quotas.found(record, [kept])
    assert usage.streams == {"s"}


@pytest.mark.parametrize("principal", [A, B])
def test_a_node_without_quotas_counts_nothing(principal: str) -> None:
    quotas = Quotas([], ManualClock())
    assert not quotas.enabled
    assert quotas.usage(principal) is None
    assert all(quotas.admit_stream(principal, str(number)) for number in range(100))


def test_other_quotas_hold_at_once_and_keep_what_is_counted() -> None:
    quotas = Quotas([Quota(who=A, streams_max=1)], ManualClock())
    assert quotas.admit_stream(A, "a")
    assert not quotas.admit_stream(A, "b")
    quotas.set([Quota(who="noise:*", streams_max=2)])
    assert quotas.admit_stream(A, "b")
    assert not quotas.admit_stream(A, "c")
    assert quotas.admit_stream(B, "d")
    quotas.set([])
    assert not quotas.enabled
    assert quotas.usage(A) is None


def test_retention_goes_on_after_a_failure_in_the_middle_of_a_sweep(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    trimmed, failures = RetentionActor._trimmed, [RuntimeError("once")]  # pyright: ignore[reportPrivateUsage]

    def failing(self: RetentionActor, *trim: Any) -> None:
        if failures:
            raise failures.pop()
        trimmed(self, *trim)

    monkeypatch.setattr(RetentionActor, "_trimmed", failing)

    async def test(core: Core) -> None:
        owner = core.peer()
        await owner.ask("stream", CreateRequest("a"))
        core.system.post(core.streams, EnsureStream("a", 4, Retention(entries_max=1)))
        await core.settle()
        for round_trip in range(2):
            for partition in range(4):
                for _ in range(3):
                    await owner.ask(f"ST_S_{partition}_a", PushRequest(1, b"x"))
            core.clock.advance(SWEEP_SECONDS + 0.1)
            await core.settle()
            core.clock.advance(SWEEP_SECONDS + 0.1)
            await core.settle()
            for partition in range(4):
                (read,) = await owner.ask(f"ST_S_{partition}_a", native.ReadRequest(1, 0, 10, 100))
                assert read.first_index == 3 * round_trip + 2
        assert failures == []

    with_core(test)


def test_a_sweep_over_many_streams_has_a_slice_under_way_at_one_time(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(retention, "SLICE_TRIMS", 3)
    trims, most = list[Trim](), 0

    async def test(core: Core) -> None:
        submit = core.store.submit

        def begun(operation: WriteOperation) -> None:
            nonlocal most
            if isinstance(operation, Trim):
                trims.append(operation)
                most = max(most, sum(trim.extent is NO_ENTRIES for trim in trims))
            submit(operation)

        monkeypatch.setattr(core.store, "submit", begun)
        owner = core.peer()
        for number in range(10):
            core.system.post(core.streams, EnsureStream(f"s{number}", 1, Retention(entries_max=1)))
            await core.settle()
            for _ in range(2):
                await owner.ask(f"ST_S_0_s{number}", PushRequest(1, b"x"))
        core.clock.advance(SWEEP_SECONDS + 0.1)
        await core.settle()
        for number in range(10):
            (read,) = await owner.ask(f"ST_S_0_s{number}", native.ReadRequest(1, 0, 10, 100))
            assert read.first_index == 1
        assert most == 3

    with_core(test)
