"""Work queues: who gets what, what a worker's word does, and what becomes of lost workers."""

from typing import Any, cast

import pytest

from core_support import Core, with_core
from queue_support import (
    ADDRESS,
    DONE,
    EXTEND,
    REJECT,
    RELEASE,
    RETRY,
    JobItem,
    Worker,
    entries,
    opened,
    push,
    shown,
    texts,
)
from rillnode.actors.core.access import Grant
from rillnode.actors.core.queues import partitions
from rillnode.actors.core.queues.members import GRACE_SECONDS
from rillnode.actors.core.queues.names import queue_address
from rillnode.actors.core.queues.partitions import AHEAD_SECONDS
from rillnode.actors.core.queues.record import QueueRecord
from rillnode.actors.core.queues.state import WORKER_KEPT_MS, QueueState
from rillnode.actors.core.quotas import Quota
from rillnode.actors.core.streams.followers import Followers
from rillnode.actors.core.streams.retention import SWEEP_SECONDS
from rillnode.actors.core.streams.revising import EnsureStream
from rillnode.actors.log import (
    Operation,
    PutRecords,
    Retention,
    SavedIndexKey,
    SaveIndex,
    WriteOperation,
)
from rillnode.codecs import native
from rillnode.codecs.dead_letters import DeadLetter
from rillnode.codecs.entries import FLAG_HEADERS, FLAG_KEYS, pack_body
from rillnode.codecs.errors import RillnodeError, StoreError
from rillnode.codecs.group_address import group_address
from rillnode.codecs.keyed import decode_headers, encode_headers
from rillnode.codecs.limits import WORK_SETTLEMENTS_MAX


async def pass_time(core: Core, seconds: float) -> None:
    """Let time pass in small steps, so that what follows from one timer is not late."""
    for _ in range(10):
        core.clock.advance(seconds / 10)
        await core.settle(4)


def test_each_entry_is_given_to_one_worker() -> None:
    async def test(core: Core) -> None:
        peer = await opened(core, *[b"%d" % n for n in range(10)])
        one, two = Worker(core, b"1"), Worker(core, b"2")
        await one.work(in_flight=4)
        await two.work(in_flight=4)
        assert texts(one.jobs) == [b"0", b"1", b"2", b"3"]
        assert texts(two.jobs) == [b"4", b"5", b"6", b"7"]
        assert (one.joined, {job.attempt for job in one.jobs}) == (1, {1})
        assert await one.settle(*one.jobs[:2]) == native.SettledResponse(101, [])
        assert texts(one.jobs[4:]) == [b"8", b"9"]
        await push(peer, b"10", b"11")
        await two.settle(*two.jobs[:1])
        assert texts(two.jobs[4:]) == [b"10"]
        document = await shown(peer)
        assert (document["in_flight"], document["done"], document["depth"]) == (8, 3, 9)
        assert [one["in_flight"] for one in document["with_workers"]] == [4, 4]

    with_core(test)


def test_partitions_are_taken_in_turn() -> None:
    async def test(core: Core) -> None:
        peer = await opened(core, b"0", b"0", b"0", partitions=3)
        await push(peer, b"1", partition=1)
        await push(peer, b"2", b"2", partition=2)
        worker = Worker(core)
        jobs = await worker.work()
        assert sorted(texts(jobs)) == [b"0", b"0", b"0", b"1", b"2", b"2"]
        await worker.settle(*jobs)
        document = await shown(peer)
        assert [one["low"] for one in document["partitions"]] == [3, 1, 2]
        await peer.ask(b"stream", native.OpenRequest(1, "s", 4))
        await push(peer, b"3", partition=3)
        await worker.work()
        core.system.exit(_cell(core))
        await core.settle()
        await worker.work()
        assert texts(worker.jobs[6:]) == [b"3"]

    with_core(test)


def test_what_is_not_answered_in_time_is_given_again_and_the_late_answer_is_refused() -> None:
    async def test(core: Core) -> None:
        await opened(core, b"x")
        slow, other = Worker(core, b"1"), Worker(core, b"2")
        (job,) = await slow.work(visibility=5_000, in_flight=1)
        await other.work(visibility=5_000)
        await pass_time(core, 4.0)
        assert await other.take() == []
        await pass_time(core, 2.0)
        again = [*await other.take(), *await slow.take()]
        assert [(one.index, one.attempt) for one in again] == [(0, 2)]
        assert await slow.settle(job) == native.SettledResponse(101, [0])
        holder = other if other.jobs else slow
        assert await holder.settle(again[0]) in (
            native.SettledResponse(101, []),
            native.SettledResponse(102, []),
        )

    with_core(test)


def test_more_time_keeps_a_job() -> None:
    async def test(core: Core) -> None:
        await opened(core, b"x")
        worker = Worker(core)
        (job,) = await worker.work(visibility=5_000)
        await pass_time(core, 4.0)
        await worker.settle(job, outcome=EXTEND, milliseconds=10_000)
        await pass_time(core, 9.0)
        assert await worker.take() == []
        assert await worker.settle(job) == native.SettledResponse(102, [])

    with_core(test)


def test_a_job_is_given_again_after_its_pause_and_is_a_dead_letter_in_the_end() -> None:
    async def test(core: Core) -> None:
        peer = await opened(core, b"bad", b"good")
        worker = Worker(core)
        bad, good = await worker.work(attempts=2)
        await worker.settle(good)
        await worker.settle(bad, outcome=RETRY, milliseconds=3_000)
        await pass_time(core, 2.0)
        assert worker.jobs[2:] == []
        await pass_time(core, 2.0)
        (bad,) = await worker.take()
        assert (bad.data, bad.attempt) == (b"bad", 2)
        await worker.settle(bad, outcome=RETRY, reason="no paper")
        (letter,) = await entries(peer, "s.dead")
        assert letter.data == b"bad"
        note = DeadLetter.of(letter)
        assert (note.queue, note.reason, note.attempts) == ("q", "no paper", 2)
        assert (note.partition, note.index) == (0, 0)
        document = await shown(peer)
        assert (document["depth"], document["dead"], document["dead_kept"]) == (0, 1, 1)
        assert document["partitions"] == [{"partition": 0, "low": 2, "next": 2, "end": 2}]

    with_core(test)


def test_dead_letters_are_the_streams_owners() -> None:
    async def test(core: Core) -> None:
        peer = await opened(core, b"bad")
        core.access.add(Grant(who="worker", streams="s", may=frozenset({"pull"})))
        worker = Worker(core, principal="worker")
        (job,) = await worker.work()
        await worker.settle(job, outcome=REJECT, reason="no")
        (info,) = await peer.ask(b"stream", native.DescribeRequest(1, "s.dead"))
        assert info.stream.owner == "friend"
        assert len(await entries(peer, "s.dead")) == 1
        (refusal,) = await worker.peer.ask(b"ST_S_0_s.dead", native.ReadRequest(1, 0, 1, 1))
        assert refusal.code == "stream.unknown"

    with_core(test)


def test_a_worker_that_rejects_for_ever_fills_the_dead_letters_in_order() -> None:
    async def test(core: Core) -> None:
        peer = await opened(core, *[b"%d" % n for n in range(600)])
        worker = Worker(core)
        await worker.work(in_flight=600)
        await worker.settle(*worker.jobs, outcome=REJECT)
        await core.settle(60)
        assert [int(one.data) for one in await entries(peer, "s.dead")] == list(range(600))
        assert (await shown(peer))["dead"] == 600

    with_core(test)


def test_dead_letters_that_cannot_be_kept_hold_the_queue_up_and_it_says_so() -> None:
    async def test(core: Core) -> None:
        peer = await opened(core, *[b"%d" % n for n in range(400)])
        worker = Worker(core)
        await worker.work(in_flight=300)
        await worker.settle(*worker.jobs, outcome=REJECT)
        assert (await worker.take()) == []
        document = await shown(peer)
        assert (document["dying"], document["dead"]) == (300, 0)
        assert document["held"] == "dead letters cannot be kept (quota.streams)"

    with_core(test, quotas=[Quota(who="friend", streams_max=1)])


def test_a_worker_that_has_had_nothing_to_do_for_long_is_one_still() -> None:
    async def test(core: Core) -> None:
        peer = await opened(core)
        idle, other = Worker(core, b"1"), Worker(core, b"2")
        await idle.work()
        await pass_time(core, 2 * WORKER_KEPT_MS / 1_000)
        await other.work()
        await push(peer, b"0", b"1")
        (job,) = await idle.take()
        assert await idle.settle(job) == native.SettledResponse(101, [])

    with_core(test)


def test_a_queue_keeps_the_order_of_keys_though_its_first_record_was_not_written(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    write_state = QueueRecord.write
    failures = [StoreError("store.failed", "no disk")]

    async def failing(self: QueueRecord, state: QueueState) -> RillnodeError | None:
        return failures.pop() if failures else await write_state(self, state)

    monkeypatch.setattr(QueueRecord, "write", failing)

    async def test(core: Core) -> None:
        peer = await opened(core, b"0", b"1")
        worker = Worker(core)
        await worker.work(by_key=True)
        assert [one.code for one in worker.failures] == ["store.failed"]
        await pass_time(core, 3.0)
        await push(peer, b"2")
        assert texts(await worker.work(by_key=True)) == [b"0", b"1", b"2"]
        assert len(worker.failures) == 1

    with_core(test)


def test_what_was_not_begun_costs_no_attempt() -> None:
    async def test(core: Core) -> None:
        await opened(core, b"x")
        worker = Worker(core)
        (job,) = await worker.work(attempts=1)
        await worker.settle(job, outcome=RELEASE)
        assert [(one.index, one.attempt) for one in worker.jobs] == [(0, 1), (0, 1)]

    with_core(test)


def test_what_a_worker_has_no_time_for_goes_to_another() -> None:
    async def test(core: Core) -> None:
        await opened(core, b"x", b"y")
        one, two = Worker(core, b"1"), Worker(core, b"2")
        _, waiting = await one.work(in_flight=2)
        await two.work(in_flight=2)
        await one.settle(waiting, outcome=RELEASE)
        (given,) = await two.take()
        assert (given.data, given.attempt) == (b"y", 1)
        assert texts(one.jobs) == [b"x", b"y"]

    with_core(test)


def test_a_lost_workers_jobs_come_back_after_a_short_grace() -> None:
    async def test(core: Core) -> None:
        await opened(core, b"x", b"y")
        lost, other = Worker(core, b"1"), Worker(core, b"2")
        await lost.work()
        lost.lose()
        await other.work()
        await pass_time(core, GRACE_SECONDS / 2)
        assert await other.take() == []
        await pass_time(core, GRACE_SECONDS)
        assert [(one.data, one.attempt) for one in await other.take()] == [(b"x", 2), (b"y", 2)]
        lost.come_back()
        assert await lost.settle(*lost.jobs) == native.SettledResponse(101, [0, 1])

    with_core(test)


def test_a_worker_that_comes_back_in_time_keeps_what_it_has() -> None:
    async def test(core: Core) -> None:
        await opened(core, b"x", b"y")
        worker, other = Worker(core, b"1"), Worker(core, b"2")
        jobs = await worker.work()
        await other.work()
        worker.lose()
        worker.come_back()
        # The second was lost on its way: it has not counted.
        await worker.work(holds=jobs[:1])
        await pass_time(core, 2 * GRACE_SECONDS)
        again = [*worker.jobs[2:], *other.jobs, *await worker.take(), *await other.take()]
        assert {(one.data, one.attempt) for one in again} == {(b"y", 1)}
        assert await worker.settle(jobs[0]) == native.SettledResponse(101, [])

    with_core(test)


def test_a_settlement_that_is_asked_again_is_answered_as_it_was() -> None:
    async def test(core: Core) -> None:
        await opened(core, b"x", b"y")
        worker = Worker(core)
        jobs = await worker.work()
        wrong = JobItem(0, 9, 1, 0, b"")
        assert await worker.settle(jobs[0], wrong) == native.SettledResponse(101, [1])
        core.system.exit(_cell(core))
        await core.settle()
        assert worker.failures == []
        assert await worker.settle(jobs[0], wrong, again=True) == native.SettledResponse(101, [1])
        assert [failure.code for failure in worker.failures] == ["actor.stopped"]
        worker.number = 0
        assert await worker.settle(jobs[1], again=True) == [
            native.Failure(100, "queue.limit", "Settlements are numbered from 1")
        ]

    with_core(test)


@pytest.mark.parametrize("count", [WORK_SETTLEMENTS_MAX + 1, 2**62, 2**64 - 1])
def test_who_is_no_worker_makes_nobody_count(count: int) -> None:
    """A message of some bytes would take all memory."""

    async def test(core: Core) -> None:
        peer = await opened(core, b"x")
        await Worker(core).work()
        items = [native.Settlement(0, 0, 1, 0, count=count)]
        (refused,) = await peer.ask(ADDRESS, native.SettleRequest(1, bytes(16), 1, items))
        assert refused.code == "queue.limit"

    with_core(test)


def test_a_new_actor_knows_what_is_with_workers() -> None:
    async def test(core: Core) -> None:
        await opened(core, b"x", b"y")
        worker, gone = Worker(core, b"1"), Worker(core, b"2")
        (job,) = await worker.work(in_flight=1)
        await gone.work(in_flight=1)
        core.system.exit(_cell(core))
        await core.settle()
        assert await worker.work(in_flight=2, holds=[job]) == []
        assert await worker.settle(job) == native.SettledResponse(101, [])
        await pass_time(core, 2 * GRACE_SECONDS)
        assert [(one.data, one.attempt) for one in await worker.take()] == [(b"y", 2)]

    with_core(test)


class Held:
    """Keeps the records of queues from the store."""

    def __init__(self, core: Core) -> None:
        self._core = core
        self._store = cast("Any", core.store)
        self._submit = self._store.submit
        self._kept: list[PutRecords] = []
        self._store.submit = self._take

    def _take(self, operation: WriteOperation) -> None:
        if isinstance(operation, PutRecords):
            self._kept.append(operation)
        else:
            self._submit(operation)

    def end(self, error: StoreError | None = None) -> int:
        """Write all that was kept, or have it failed; return how much that is."""
        self._store.submit = self._submit
        for operation in self._kept:
            if error is None:
                self._submit(operation)
            else:
                operation.error = error
                self._core.complete(operation)
        return len(self._kept)

    async def lose(self) -> None:
        """Have all of it lost with the queue's actor."""
        self._store.submit = self._submit
        self._core.system.exit(_cell(self._core))
        await self._core.settle()


def test_who_has_settled_a_job_has_another_before_that_is_durable() -> None:
    async def test(core: Core) -> None:
        await opened(core, *[b"%d" % n for n in range(20)])
        worker = Worker(core)
        await worker.work(in_flight=4)
        held = Held(core)
        for number in range(6):
            assert await worker.settle(worker.jobs[number]) == []
            assert texts(worker.jobs[number + 4 :]) == [b"%d" % (number + 4)]
        assert held.end() == 1  # the first; the others go into one when that is durable
        await worker.take()
        assert worker.settled == [native.SettledResponse(101 + n, []) for n in range(6)]

    with_core(test)


def test_where_keys_are_in_order_the_next_is_given_when_the_last_is_durable() -> None:
    async def test(core: Core) -> None:
        await opened(core, *[b"%d" % n for n in range(9)])
        worker = Worker(core)
        await worker.work(in_flight=4, by_key=True)
        held = Held(core)
        assert await worker.settle(worker.jobs[0]) == []
        assert len(worker.jobs) == 4
        assert held.end() == 1
        assert texts(await worker.take()) == [b"4"]
        assert worker.settled == [native.SettledResponse(101, [])]

    with_core(test)


def test_what_was_sent_before_its_queue_failed_stays_its_workers() -> None:
    async def test(core: Core) -> None:
        await opened(core, *[b"%d" % n for n in range(9)])
        one, two, other = Worker(core, b"1"), Worker(core, b"2"), Worker(core, b"3")
        await one.work(in_flight=2)
        await two.work(in_flight=2)
        held = Held(core)
        await one.settle(one.jobs[0])
        await two.settle(two.jobs[0])
        assert (texts(one.jobs), texts(two.jobs)) == ([b"0", b"1", b"4"], [b"2", b"3", b"5"])
        await held.lose()
        assert await other.work(in_flight=1) == []
        # A client asks again what has no answer, and then says what it has.
        for worker in (two, one):
            assert await worker.take() == []
            assert {failure.code for failure in worker.failures} == {"actor.stopped"}
            assert await worker.settle(worker.jobs[0], again=True) == []
            assert await worker.work(in_flight=2, holds=worker.jobs[:3]) == []
            assert worker.settled.pop() == native.SettledResponse(101, [])
        assert texts([*one.jobs[3:], *two.jobs[3:]]) == []
        assert texts(await other.take()) == [b"6"]
        for worker in (one, two):
            assert await worker.settle(*worker.jobs[1:3]) == native.SettledResponse(102, [])
        assert {job.attempt for job in (*one.jobs, *two.jobs, *other.jobs)} == {1}

    with_core(test)


def test_what_was_sent_to_a_worker_that_is_gone_is_given_for_the_first_time() -> None:
    async def test(core: Core) -> None:
        await opened(core, *[b"%d" % n for n in range(3)])
        gone, other = Worker(core, b"1"), Worker(core, b"2")
        await gone.work(in_flight=2)
        held = Held(core)
        await gone.settle(gone.jobs[0])
        assert texts(gone.jobs) == [b"0", b"1", b"2"]
        await held.lose()
        assert await other.work() == []
        await pass_time(core, 2 * GRACE_SECONDS)
        assert {(job.data, job.attempt) for job in await other.take()} == {
            (b"0", 2), (b"1", 2), (b"2", 1)
        }  # fmt: skip
        # After a failure no entry is out before its attempt is written: one that ends its node
        # comes to an end.
        held = Held(core)
        await other.settle(*other.jobs)
        assert len(other.jobs) == 3
        held.end()

    with_core(test)


def test_a_worker_can_claim_nothing_that_it_cannot_have() -> None:
    async def test(core: Core) -> None:
        peer = await opened(core, *[b"%d" % n for n in range(6)])
        worker, other = Worker(core, b"1"), Worker(core, b"2")
        await worker.work(in_flight=1)
        await other.work(in_flight=1)
        core.system.exit(_cell(core))
        await core.settle()
        await other.work(in_flight=1, holds=other.jobs)
        claims = [*other.jobs, *(JobItem(*place, 0, b"") for place in ((0, 5, 2), (0, 6, 1)))]
        claims += [JobItem(7, 0, 1, 0, b""), JobItem(0, 2**40, 1, 0, b"")]
        await worker.work(in_flight=1, holds=[*worker.jobs, *claims])
        assert await worker.settle(*claims) == native.SettledResponse(101, [0, 1, 2, 3, 4])
        assert await worker.settle(worker.jobs[0]) == native.SettledResponse(102, [])
        assert (await shown(peer))["partitions"] == [
            {"partition": 0, "low": 1, "next": 3, "end": 6}
        ]

    with_core(test)


def test_what_was_sent_before_a_write_failed_stays_its_workers() -> None:
    async def test(core: Core) -> None:
        peer = await opened(core, *[b"%d" % n for n in range(9)])
        worker = Worker(core)
        await worker.work(in_flight=2)
        held = Held(core)
        await worker.settle(worker.jobs[0])
        assert texts(worker.jobs) == [b"0", b"1", b"2"]
        assert held.end(StoreError("store.failed", "no disk")) == 1
        await worker.take()
        assert [failure.code for failure in worker.failures] == ["store.failed"]
        assert await worker.settle(worker.jobs[0], again=True) == native.SettledResponse(101, [])
        assert await worker.settle(*worker.jobs[1:3]) == native.SettledResponse(102, [])
        assert texts(worker.jobs[3:]) == [b"3", b"4"]
        assert (await shown(peer))["done"] == 3

    with_core(test)


def test_nothing_is_told_of_what_a_round_that_failed_has_left_unwritten(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async def test(core: Core) -> None:
        peer = await opened(core, b"0", b"1", b"2")
        worker = Worker(core)
        await worker.work(in_flight=3)
        held = Held(core)
        for job in worker.jobs[:2]:  # the first is being written, the second waits for that
            assert await worker.settle(job) == []
        with monkeypatch.context() as broken:
            broken.setattr(core.store, "read", _fail_read)
            failed = await worker.settle(worker.jobs[2])
        assert [failure.code for failure in failed] == ["store.failed"] * 2
        assert {failure.request_id for failure in failed} == {102, 103}
        assert held.end() == 1
        await worker.take()
        assert worker.settled == [native.SettledResponse(101, [])]
        assert (await shown(peer))["done"] == 1
        assert await worker.settle(worker.jobs[2], again=True) == native.SettledResponse(103, [])
        worker.number = 2
        assert await worker.settle(worker.jobs[1], again=True) == native.SettledResponse(102, [])
        assert (await shown(peer))["done"] == 3

    with_core(test)


def _fail_read(operation: Operation) -> bool:
    operation.error = StoreError("store.failed", "no disk")
    return True


def test_leaving_gives_jobs_back_at_once() -> None:
    async def test(core: Core) -> None:
        await opened(core, b"x")
        one, two = Worker(core, b"1"), Worker(core, b"2")
        await one.work()
        await two.work()
        one.send(native.UnsubscribeRequest(7))
        assert [(job.data, job.attempt) for job in await two.take()] == [(b"x", 2)]

    with_core(test)


def test_who_leaves_before_it_is_a_worker_is_given_nothing() -> None:
    async def test(core: Core) -> None:
        await opened(core, b"x")
        one, two = Worker(core, b"1"), Worker(core, b"2")
        one.send(native.WorkRequest(7, one.token, [], 10, 0, 3, 30_000, False))
        one.send(native.UnsubscribeRequest(7))
        assert await one.take() == []
        assert [(job.data, job.attempt) for job in await two.work()] == [(b"x", 1)]
        assert (await shown(two.peer))["workers"] == 1

    with_core(test)


def test_all_workers_together_have_no_more_than_the_queue_allows() -> None:
    async def test(core: Core) -> None:
        await opened(core, *[b"%d" % n for n in range(10)])
        one, two = Worker(core, b"1"), Worker(core, b"2")
        await one.work(all_in_flight=3, in_flight=2)
        await two.work(all_in_flight=3)
        assert (len(one.jobs), len(two.jobs)) == (2, 1)
        await one.settle(one.jobs[0])
        assert len(one.jobs) + len(two.jobs) + len(await two.take()) == 4

    with_core(test)


def test_trimmed_entries_are_passed_over_and_counted() -> None:
    async def test(core: Core) -> None:
        peer = await opened(core, *[b"%d" % n for n in range(10)])
        worker = Worker(core)
        jobs = await worker.work(in_flight=2)
        await worker.settle(jobs[0], outcome=RETRY, milliseconds=1_000)
        held = worker.jobs[1:]
        assert texts(held) == [b"1", b"2"]
        await peer.ask(b"stream", native.TrimRequest(1, "s", 0, 6))
        core.system.exit(_cell(core))
        await core.settle()
        await worker.work(holds=held)
        assert await worker.settle(*held) == native.SettledResponse(102, [])
        await pass_time(core, 2.0)
        await worker.take()
        assert texts(worker.jobs[3:]) == [b"6", b"7", b"8", b"9"]
        await worker.settle(*worker.jobs[3:])
        document = await shown(peer)
        assert (document["trimmed"], document["done"], document["depth"]) == (4, 6, 0)

    with_core(test)


@pytest.mark.parametrize("by_key", [False, True])
@pytest.mark.parametrize("by_rule", [False, True])
def test_what_was_read_ahead_is_not_given_from_when_it_is_trimmed(
    monkeypatch: pytest.MonkeyPatch, by_key: bool, by_rule: bool
) -> None:
    monkeypatch.setattr(partitions, "AHEAD_SECONDS", 1e9)

    async def test(core: Core) -> None:
        peer = await opened(core, *[b"%d" % n for n in range(10)])
        worker = Worker(core)
        (job,) = await worker.work(in_flight=1, by_key=by_key)
        if by_rule:
            core.system.post(core.streams, EnsureStream("s", 1, Retention(entries_max=2)))
            await core.settle()
            core.clock.advance(SWEEP_SECONDS + 0.1)
            await core.settle()
        else:
            await peer.ask(b"stream", native.TrimRequest(1, "s", 0, 8))
        await worker.settle(job)
        assert texts(worker.jobs) == [b"0", b"8"]
        found = await shown(peer)
        assert (found["trimmed"], found["depth"]) == (7, 2)

    with_core(test)


@pytest.mark.parametrize("by_key", [False, True])
def test_what_was_read_ahead_is_not_given_a_second_after_another_node_has_trimmed_it(
    monkeypatch: pytest.MonkeyPatch, by_key: bool
) -> None:
    def unheard(*_: object) -> None:
        """This node does not hear of it."""

    monkeypatch.setattr(Followers, "trimmed", unheard)

    async def test(core: Core) -> None:
        peer = await opened(core, *[b"%d" % n for n in range(10)])
        worker = Worker(core)
        (job,) = await worker.work(in_flight=1, by_key=by_key)
        await peer.ask(b"stream", native.TrimRequest(1, "s", 0, 8))
        core.clock.advance(AHEAD_SECONDS)
        await worker.settle(job)
        await worker.settle(worker.jobs[1])
        assert texts(worker.jobs) == [b"0", b"8", b"9"]
        assert (await shown(peer))["trimmed"] == 7

    with_core(test)


def test_a_queue_ends_with_its_stream() -> None:
    async def test(core: Core) -> None:
        peer = await opened(core, b"x")
        worker = Worker(core)
        (job,) = await worker.work()
        await peer.ask(b"stream", native.RemoveRequest(1, "s"))
        await worker.take()
        assert [failure.code for failure in worker.failures] == ["stream.removed"]
        await opened(core, b"y")
        assert await worker.settle(job) == [
            native.Failure(101, "queue.unknown", worker.failures[-1].text)
        ]
        assert texts(await worker.work()) == [b"y"]

    with_core(test)


def test_a_right_that_ends_ends_the_work() -> None:
    async def test(core: Core) -> None:
        await opened(core, b"x")
        grant = Grant(who="guest", streams="s", may=frozenset({"pull"}))
        core.access.add(grant)
        worker, other = Worker(core, b"1", "guest"), Worker(core, b"2")
        (job,) = await worker.work()
        await other.work()
        core.access.replace([grant], [])
        assert texts(await other.take()) == [b"x"]
        await worker.take()
        assert [failure.code for failure in worker.failures] == ["queue.revoked"]
        assert (await worker.settle(job))[0].code == "stream.unknown"

    with_core(test)


@pytest.mark.parametrize(
    ("fields", "code", "part"),
    [
        ({"in_flight": 0}, "queue.limit", "1 to 10,000 jobs in flight"),
        ({"in_flight": 10_001}, "queue.limit", "1 to 10,000 jobs in flight"),
        ({"attempts": 0}, "queue.limit", "1 to 1,000 attempts"),
        ({"visibility": 1}, "queue.limit", "for 0.01 to 43,200 s"),
        ({"visibility": 10**9}, "queue.limit", "for 0.01 to 43,200 s"),
        ({"address": queue_address("s", "q" * 256)}, "queue.name", "1 to 255 bytes"),
        ({"address": queue_address("s", "")}, "queue.name", "1 to 255 bytes"),
        ({"address": queue_address("t", "q")}, "stream.unknown", 'There is no stream "t"'),
        ({"address": b"WQ_q"}, "address.unknown", "No such address"),
    ],
)
def test_what_cannot_be_is_refused(fields: dict[str, Any], code: str, part: str) -> None:
    async def test(core: Core) -> None:
        await opened(core)
        worker = Worker(core)
        await worker.work(**fields)
        (failure,) = worker.failures
        assert failure.code == code
        assert part in failure.text

    with_core(test)


def test_wrong_words_on_jobs_are_refused() -> None:
    async def test(core: Core) -> None:
        await opened(core, b"x")
        worker = Worker(core)
        (job,) = await worker.work()
        assert (await worker.settle(job, outcome=9))[0].code == "queue.limit"
        late = await worker.settle(job, outcome=RETRY, milliseconds=10**9)
        assert late[0].text == "A pause, or more time, is at most 43,200 s"
        many = await worker.settle(*[job] * 1_025)
        assert many[0].text == "One request settles at most 1,024 jobs: send several"
        stranger = Worker(core, b"?")
        assert await stranger.settle(job) == native.SettledResponse(101, [0])
        worker.token = b"short"
        await worker.work()
        assert worker.failures[-1].text == "A worker's token has 16 bytes"
        worker.peer.send(ADDRESS, native.encode(native.StatusRequest(5)), b"", b"\x03abc\x00")
        await worker.take()
        assert worker.failures[-1].code == "request.invalid"

    with_core(test)


def test_a_consumers_name_is_no_queues() -> None:
    async def test(core: Core) -> None:
        await opened(core, b"x")
        core.store.submit(SaveIndex(key=SavedIndexKey("s", 0, "q"), index=1))
        worker = Worker(core)
        await worker.work()
        (failure,) = worker.failures
        assert failure.code == "queue.name"
        assert failure.text == "q is a consumer of s already: choose another name"
        (gone,) = await (await opened(core)).ask(ADDRESS, native.DescribeQueueRequest(4))
        assert gone.code == "queue.unknown"

    with_core(test)


def test_a_queues_name_is_no_consumers() -> None:
    async def test(core: Core) -> None:
        peer = await opened(core, b"x", partitions=2)
        await Worker(core).work()
        core.system.exit(_cell(core))  # nobody works on it any more
        await core.settle()
        (failure,) = await peer.ask(b"stream_index", native.SaveIndexRequest(1, "q", "s", 1, 1))
        assert (failure.code, failure.text) == (
            "queue.name",
            "q is a work queue of s: choose another name",
        )
        for request in (
            native.JoinGroupRequest(2, b"m" * 16, True),
            native.BeatGroupRequest(2, b""),
        ):
            (failure,) = await peer.ask(group_address("s", "q"), request)
            assert failure.code == "queue.name"
        (saved,) = await peer.ask(b"stream_index", native.SaveIndexRequest(1, "c", "s", 0, 1))
        assert saved == native.SavedIndexResponse(1, 1)
        await peer.ask(b"stream", native.RemoveRequest(3, "s"))
        await opened(core, b"x")
        (saved,) = await peer.ask(b"stream_index", native.SaveIndexRequest(1, "q", "s", 0, 1))
        assert saved == native.SavedIndexResponse(1, 1)

    with_core(test)


def test_who_may_not_pull_knows_of_no_queue() -> None:
    async def test(core: Core) -> None:
        peer = await opened(core, b"x")
        await Worker(core).work()
        stranger = Worker(core, b"2", "stranger")
        await stranger.work()
        assert [failure.code for failure in stranger.failures] == ["stream.unknown"]
        listing = native.ListQueuesRequest(1, "", "", "")
        (found,) = await stranger.peer.ask(b"queues", listing)
        assert found == native.QueuesResponse(1, [], None)
        (found,) = await peer.ask(b"queues", listing)
        assert found == native.QueuesResponse(1, [native.QueueName("s", "q")], None)

    with_core(test)


def test_a_queue_that_nobody_has_worked_on_is_unknown() -> None:
    async def test(core: Core) -> None:
        peer = await opened(core, b"x")
        for request in (native.DescribeQueueRequest(1), native.TakeBackRequest(1, 10)):
            (failure,) = await peer.ask(ADDRESS, request)
            assert failure.code == "queue.unknown"

    with_core(test)


def test_dead_letters_are_given_again_once() -> None:
    async def test(core: Core) -> None:
        peer = await opened(core, b"a", b"b", b"c")
        worker = Worker(core)
        jobs = await worker.work()
        await worker.settle(*jobs, outcome=REJECT)
        await push(peer, b"pushed by somebody", name="s.dead")
        await peer.ask(b"stream", native.TrimRequest(1, "s", 0, 1))
        (taken,) = await peer.ask(ADDRESS, native.TakeBackRequest(1, 2))
        assert taken == native.TakenBackResponse(1, 1, 1, 2)
        (taken,) = await peer.ask(ADDRESS, native.TakeBackRequest(1, 100))
        assert taken == native.TakenBackResponse(1, 1, 0, 0)
        (taken,) = await peer.ask(ADDRESS, native.TakeBackRequest(1, 100))
        assert taken == native.TakenBackResponse(1, 0, 0, 0)
        again = await worker.take()
        assert [(one.data, one.attempt) for one in again] == [(b"b", 1), (b"c", 1)]
        await worker.settle(*again)
        assert ((await shown(peer))["dead"], (await shown(peer))["done"]) == (1, 2)

    with_core(test)


def test_the_order_of_keys_is_kept_or_not_as_long_as_something_is_open() -> None:
    async def test(core: Core) -> None:
        await opened(core, b"x")
        worker, other = Worker(core, b"1"), Worker(core, b"2")
        (job,) = await worker.work()
        await other.work(by_key=True)
        assert [failure.code for failure in other.failures] == ["queue.order"]
        await worker.settle(job, outcome=DONE)
        await other.work(by_key=True)
        assert len(other.failures) == 1

    with_core(test)


def test_entries_of_a_key_are_out_one_at_a_time_with_their_keys_and_headers() -> None:
    async def test(core: Core) -> None:
        peer = await opened(core)
        items = [b"k0", b"j0", b"k1", b"n0", b"n1"]
        headers = [encode_headers({"h": data}) for data in items]
        body = pack_body(items, None, [b"k", b"j", b"k", None, None], headers)
        request = native.AppendRequest(2, 5, body, FLAG_KEYS | FLAG_HEADERS)
        (answer,) = await peer.ask(b"ST_S_0_s", request)
        assert isinstance(answer, native.PositionResponse), answer
        worker, other = Worker(core, b"1"), Worker(core, b"2")
        jobs = await worker.work(by_key=True, in_flight=4)
        await other.work(by_key=True)
        assert texts(jobs) == [b"k0", b"j0", b"n0", b"n1"]
        assert [job.key for job in jobs] == [b"k", b"j", None, None]
        assert decode_headers(jobs[0].headers) == {"h": b"k0"}
        assert other.jobs == []
        await worker.settle(jobs[0], outcome=RETRY, milliseconds=1_000)
        assert await other.take() == []
        await pass_time(core, 2.0)
        (again,) = [*await other.take(), *await worker.take()]
        assert (again.data, again.attempt) == (b"k0", 2)
        holder = other if other.jobs else worker
        await holder.settle(again, outcome=REJECT)
        await other.take()
        await worker.take()
        assert sorted(texts([*worker.jobs, *other.jobs]))[-2:] == [b"n0", b"n1"]
        assert texts([*worker.jobs, *other.jobs]).count(b"k1") == 1
        (letter,) = await entries(peer, "s.dead")
        assert (letter.data, letter.key, letter.headers) == (b"k0", b"k", {"h": b"k0"})

    with_core(test)


def test_an_idle_queue_leaves_nothing_but_its_record() -> None:
    async def test(core: Core) -> None:
        peer = await opened(core, b"x", b"y")
        worker = Worker(core)
        jobs = await worker.work()
        await worker.settle(jobs[0])
        worker.send(native.UnsubscribeRequest(7))
        await worker.take()
        # Somebody who only looks, and a stream that grows, keep nobody awake.
        for _ in range(6):
            await push(peer, b"more")
            await pass_time(core, 30.0)
        assert core.router.lookup(ADDRESS) is None
        assert core.context.queues.gauges == {}
        assert not any(core.context.followers.logs)
        assert (await shown(peer))["depth"] == 7
        assert texts(await Worker(core, b"2").work())[:2] == [b"y", b"more"]

    with_core(test)


def _cell(core: Core) -> Any:
    cell = core.router.lookup(ADDRESS)
    assert cell is not None
    return cell
