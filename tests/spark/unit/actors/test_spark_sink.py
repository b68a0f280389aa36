"""The Spark sink actor: its job's life, ranges, commits, lag and what it holds back."""

from collections.abc import Callable
from functools import partial
from typing import Any, get_args

import msgspec
import pytest

from core_support import Core, Peer, with_core
from rillnode.actors.core.delivery import Delivery
from rillnode.actors.core.room import LOOK_SECONDS
from rillnode.actors.core.streams.holds import Holds
from rillnode.actors.core.streams.index_service import IndexService
from rillnode.actors.engine.faults import When
from rillnode.actors.log import ListStreams, Read, ReadOperation, SaveIndex
from rillnode.actors.spark.sink_job import (
    BACKOFF_SECONDS,
    CONFIGURATION_CODE,
    FAILURES_MAX,
    KEY_RETRY_SECONDS,
    KEY_SECONDS,
    PASSING_CODE,
    SinkStatus,
)
from rillnode.actors.spark.spark_sink import (
    MEASURE_SECONDS,
    SinkPorts,
    SinkSettings,
    SparkSinkActor,
    StopSink,
    literal_prefix,
)
from rillnode.codecs import native
from rillnode.codecs.entries import pack_body
from rillnode.codecs.errors import ConfigError, RillnodeError, TransportError
from rillnode.codecs.limits import LINK_BUFFER_HIGH_BYTES
from rillnode.node.simulation.leftovers import remembered
from rillnode.testing import fail, message_types

SINK = "sink/bronze"


class Job:
    """A process that is none."""

    def __init__(self, on_exit: Callable[[int], None], pid: int) -> None:
        self.on_exit = on_exit
        self.pid = pid
        self.terminated = False
        self.last_words = "it is broken [job.spark]"

    def terminate(self) -> None:
        self.terminated = True

    def kill(self) -> None:
        self.on_exit(-9)


class Sink:
    """A sink actor with its surroundings.

    Attributes:
        no_start: why no job can be started now.
        no_key: why no key can be issued now.
    """

    def __init__(
        self,
        core: Core,
        *streams: str,
        hold_bytes_max: int = 1_000_000,
        external: bool = False,
        no_start: RillnodeError | None = None,
        no_key: RillnodeError | None = None,
    ) -> None:
        self.core = core
        self.no_start = no_start
        self.no_key = no_key
        self.jobs: list[Job] = []
        self.keys = 0
        self.status = SinkStatus()
        ports = SinkPorts(self.launch, self.issue_key, core.access, core.holds, core.indexes)
        settings = SinkSettings(
            name="bronze", streams=streams, hold_bytes_max=hold_bytes_max, external=external
        )
        self.cell = core.system.spawn(
            partial(SparkSinkActor, core.context, settings, ports, self.status)
        )
        self.job = core.peer("sink/bronze")

    def launch(self, _: str, environment: dict[str, str], on_exit: Callable[[int], None]) -> Job:
        assert environment == {}
        if self.no_start is not None:
            raise self.no_start
        self.jobs.append(Job(on_exit, 1_000 + len(self.jobs)))
        return self.jobs[-1]

    def issue_key(self, sink: str) -> str:
        assert sink == "bronze"
        if self.no_key is not None:
            raise self.no_key
        self.keys += 1
        return f"noise:{self.keys}"


async def push(peer: Peer, name: str, *items: bytes, partitions: int = 1) -> None:
    """Push to partition 0 of a stream."""
    answers = await peer.ask("stream", native.OpenRequest(1, name, partitions))
    address = answers[0].stream.partitions[0].address
    answers = await peer.ask(address, native.AppendRequest(2, len(items), pack_body(items)))
    assert isinstance(answers[0], native.PositionResponse)


def test_job_is_started_with_a_key_that_stands_for_the_sink() -> None:
    async def test(core: Core) -> None:
        sink = Sink(core, "s*")
        await core.settle()
        assert [job.pid for job in sink.jobs] == [1_000]
        assert (sink.status.state, sink.status.pid) == ("running", 1_000)
        assert core.access.principal_of("noise:1") == "sink/bronze"
        assert core.access.verbs("sink/bronze", "s1") == {"pull"}
        assert not core.access.verbs("sink/bronze", "other")

    with_core(test)


def test_a_job_that_somebody_else_starts_is_answered_and_not_started() -> None:
    async def test(core: Core) -> None:
        await push(core.peer(), "s", b"a")
        sink = Sink(core, "s", external=True)
        await core.settle()
        assert (sink.jobs, sink.status.state) == ([], "external")
        assert core.access.principal_of("noise:1") == "sink/bronze"
        (ends,) = await sink.job.ask(SINK, native.SinkEndsRequest(1))
        assert [end.next_index for end in ends.ends] == [1]
        admin = core.peer()
        for run in (False, True):
            (refused,) = await admin.ask(SINK, native.SinkControlRequest(2, run))
            assert refused.code == "sink.external"
        assert (sink.jobs, sink.status.state) == ([], "external")

    with_core(test)


def test_job_that_ends_is_started_again_later_and_later() -> None:
    async def test(core: Core) -> None:
        sink = Sink(core, "s*")
        await core.settle()
        for started, pause in enumerate((1.0, 2.0, 5.0, 10.0), 1):
            sink.jobs[-1].on_exit(1)
            await core.settle()
            assert (sink.status.pid, sink.status.last_exit) == (None, 1)
            core.clock.advance(pause * 0.9)
            await core.settle()
            assert len(sink.jobs) == started
            core.clock.advance(pause * 0.2)
            await core.settle()
            assert len(sink.jobs) == started + 1

    with_core(test)


async def end_job(core: Core, sink: Sink, code: int) -> None:
    """Let the running job end, and all the time pass after which it is started again."""
    sink.jobs[-1].on_exit(code)
    await core.settle()
    core.clock.advance(BACKOFF_SECONDS[-1] + 1)
    await core.settle()


def test_a_job_that_only_fails_is_parked_until_it_is_resumed() -> None:
    async def test(core: Core) -> None:
        sink = Sink(core, "s*")
        await core.settle()
        for started in range(1, FAILURES_MAX + 1):
            assert (len(sink.jobs), sink.status.state) == (started, "running")
            await end_job(core, sink, 1)
        assert len(sink.jobs) == FAILURES_MAX
        assert (sink.status.state, sink.status.failures) == ("parked", FAILURES_MAX)
        assert sink.status.last_error == "it is broken [job.spark]"
        core.clock.advance(10_000)
        await core.settle()
        assert len(sink.jobs) == FAILURES_MAX
        resume = native.SinkControlRequest(1, run=True)
        assert await core.peer().ask(SINK, resume) == [native.DoneResponse(1)]
        assert (sink.status.state, sink.status.failures) == ("running", 0)
        await end_job(core, sink, 1)
        assert (sink.status.state, len(sink.jobs)) == ("running", FAILURES_MAX + 2)

    with_core(test)


def test_a_wrong_configuration_parks_at_once_and_what_passes_never() -> None:
    async def test(core: Core) -> None:
        sink = Sink(core, "s*")
        await core.settle()
        for _ in range(3 * FAILURES_MAX):
            await end_job(core, sink, PASSING_CODE)
            # It waits, with the reason, also while another start is tried.
            assert (sink.status.state, sink.status.last_exit) == ("waiting", PASSING_CODE)
            assert (sink.status.pid, sink.status.last_error) == (
                sink.jobs[-1].pid,
                "it is broken [job.spark]",
            )
        await end_job(core, sink, CONFIGURATION_CODE)
        assert (sink.status.state, sink.status.last_exit) == ("parked", CONFIGURATION_CODE)

    with_core(test)


FULL = TransportError("job.start", "no room")


@pytest.mark.parametrize("missing", ["process", "key"])
def test_a_job_that_cannot_be_started_is_waited_for(missing: str) -> None:
    async def test(core: Core) -> None:
        if missing == "key":
            sink = Sink(core, "s*", no_key=FULL)
        else:
            sink = Sink(core, "s*", no_start=FULL)
        await core.settle()
        for _ in range(3 * FAILURES_MAX):
            assert (sink.status.state, sink.status.pid) == ("waiting", None)
            assert (sink.status.last_exit, sink.status.last_error) == (PASSING_CODE, str(FULL))
            core.clock.advance(BACKOFF_SECONDS[-1] + 1)
            await core.settle()
        assert sink.status.failures == 3 * FAILURES_MAX + 1
        sink.no_start = sink.no_key = None
        core.clock.advance(BACKOFF_SECONDS[-1] + 1)
        await core.settle()
        assert (sink.status.state, sink.status.pid) == ("waiting", 1_000)
        assert core.access.principal_of("noise:1") == "sink/bronze"
        await sink.job.ask(SINK, native.SinkReportRequest(1, b"{}"))
        assert (sink.status.state, sink.status.last_exit) == ("running", None)

    with_core(test)


def test_a_job_that_cannot_be_started_is_not_tried_more_often_for_being_resumed() -> None:
    async def test(core: Core) -> None:
        sink = Sink(core, "s*", no_start=FULL)
        await core.settle()
        admin = core.peer()
        for number in range(5):
            await admin.ask(SINK, native.SinkControlRequest(2 * number, run=False))
            assert (sink.status.state, sink.status.last_exit) == ("paused", None)
            await admin.ask(SINK, native.SinkControlRequest(2 * number + 1, run=True))
            assert (sink.status.state, sink.status.failures) == ("waiting", 1)
        core.clock.advance(BACKOFF_SECONDS[0] + 0.1)
        await core.settle()
        assert sink.status.failures == 2

    with_core(test)


def test_a_job_that_waits_to_start_again_does_so_though_it_is_resumed() -> None:
    async def test(core: Core) -> None:
        sink = Sink(core, "s*")
        await core.settle()
        sink.jobs[0].on_exit(1)
        await core.settle()
        assert sink.status.state == "waiting to start again"
        await core.peer().ask(SINK, native.SinkControlRequest(1, run=True))
        core.clock.advance(BACKOFF_SECONDS[0] + 0.1)
        await core.settle()
        assert (sink.status.state, len(sink.jobs)) == ("running", 2)

    with_core(test)


def test_a_job_whose_key_is_wrong_is_parked_until_it_is_resumed() -> None:
    async def test(core: Core) -> None:
        sink = Sink(core, "s*", no_key=ConfigError("key.file", "no such key file"))
        await core.settle()
        core.clock.advance(10_000)
        await core.settle()
        assert (sink.status.state, sink.status.failures) == ("parked", 1)
        assert sink.status.last_error == "no such key file [key.file]"
        sink.no_key = None
        await core.peer().ask(SINK, native.SinkControlRequest(1, run=True))
        assert (sink.status.state, sink.status.pid) == ("running", 1_000)

    with_core(test)


def test_a_key_that_cannot_be_renewed_stays_good_until_it_is() -> None:
    async def test(core: Core) -> None:
        sink = Sink(core, "s*")
        await core.settle()
        sink.no_key = FULL
        core.clock.advance(5 * KEY_SECONDS)
        await core.settle()
        assert (sink.status.state, sink.keys) == ("running", 1)
        assert core.access.known("noise:1")
        sink.no_key = None
        core.clock.advance(KEY_RETRY_SECONDS + 1)
        await core.settle()
        assert core.access.known("noise:2")

    with_core(test)


def test_what_passes_does_not_bring_a_job_nearer_to_being_parked() -> None:
    async def test(core: Core) -> None:
        sink = Sink(core, "s*")
        await core.settle()
        for _ in range(FAILURES_MAX):
            await end_job(core, sink, PASSING_CODE)
        for _ in range(FAILURES_MAX - 1):
            await end_job(core, sink, 1)
            assert sink.status.state == "running"
        await end_job(core, sink, 1)
        assert sink.status.state == "parked"

    with_core(test)


def test_a_sink_waits_until_its_job_makes_progress() -> None:
    async def test(core: Core) -> None:
        sink = Sink(core, "s*")
        await core.settle()
        await end_job(core, sink, PASSING_CODE)
        assert (sink.status.state, len(sink.jobs)) == ("waiting", 2)
        await sink.job.ask(SINK, native.SinkReportRequest(1, b'{"rows": 5}'))
        assert (sink.status.state, sink.status.last_exit) == ("running", None)
        # One that is told to pause meanwhile does not come back by a late report.
        await end_job(core, sink, PASSING_CODE)
        await core.peer().ask(SINK, native.SinkControlRequest(2, run=False))
        await sink.job.ask(SINK, native.SinkReportRequest(3, b"{}"))
        assert sink.status.state == "pausing"

    with_core(test)


def test_a_paused_job_ends_and_is_started_when_resumed() -> None:
    async def test(core: Core) -> None:
        sink = Sink(core, "s*")
        await core.settle()
        admin = core.peer()
        await admin.ask(SINK, native.SinkControlRequest(1, run=False))
        assert (sink.jobs[0].terminated, sink.status.state) == (True, "pausing")
        await end_job(core, sink, 0)
        assert (sink.status.state, sink.status.last_exit, len(sink.jobs)) == ("paused", None, 1)
        await admin.ask(SINK, native.SinkControlRequest(2, run=True))
        assert (sink.status.state, len(sink.jobs)) == ("running", 2)
        # What runs is not started again.
        await admin.ask(SINK, native.SinkControlRequest(3, run=True))
        assert len(sink.jobs) == 2
        # One that waits to be started is paused too.
        sink.jobs[-1].on_exit(1)
        await core.settle()
        await admin.ask(SINK, native.SinkControlRequest(4, run=False))
        core.clock.advance(1_000)
        await core.settle()
        assert (sink.status.state, len(sink.jobs)) == ("paused", 2)

    with_core(test)


def test_a_job_resumed_while_it_ends_is_started_after_its_end() -> None:
    async def test(core: Core) -> None:
        sink = Sink(core, "s*")
        await core.settle()
        admin = core.peer()
        await admin.ask(SINK, native.SinkControlRequest(1, run=False))
        await admin.ask(SINK, native.SinkControlRequest(2, run=True))
        assert len(sink.jobs) == 1
        await end_job(core, sink, 0)
        assert (sink.status.state, len(sink.jobs)) == ("running", 2)

    with_core(test)


def test_its_own_job_does_not_control_a_sink() -> None:
    async def test(core: Core) -> None:
        sink = Sink(core, "s*")
        await core.settle()
        answers = await sink.job.ask(SINK, native.SinkControlRequest(1, run=False))
        assert answers[0].code == "request.invalid"
        assert not sink.jobs[0].terminated

    with_core(test)


def test_progress_makes_the_next_failure_a_first_one() -> None:
    async def test(core: Core) -> None:
        sink = Sink(core, "s*")
        await core.settle()
        for _ in range(3):
            sink.jobs[-1].on_exit(1)
            await core.settle()
            core.clock.advance(60)
            await core.settle()
        answers = await sink.job.ask(SINK, native.SinkReportRequest(1, b'{"rows": 5}'))
        assert answers == [native.DoneResponse(1)]
        assert sink.status.report == {"rows": 5}
        jobs = len(sink.jobs)
        sink.jobs[-1].on_exit(1)
        await core.settle()
        core.clock.advance(1.1)
        await core.settle()
        assert len(sink.jobs) == jobs + 1

    with_core(test)


@pytest.mark.parametrize("external", [False, True])
def test_a_table_that_the_job_does_not_keep_is_the_sinks_state(
    external: bool, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO", "rillnode.actors.spark.spark_sink")

    async def test(core: Core) -> None:
        sink = Sink(core, "s*", external=external)
        await core.settle()
        works = sink.status.worst_state()
        report = {
            "silver": {"state": "failed", "error": "do this"},
            "gold/minutes": {"state": "running"},
            "gold/lag": {"state": "of a later version"},
            "own": {"state": "failed", "error": "nobody asked"},
        }
        for _ in range(2):
            text = msgspec.json.encode(report)
            assert (await sink.job.ask(SINK, native.SinkReportRequest(1, text)))[0].request_id == 1
            assert (sink.status.worst_state(), sink.status.error) == (
                "failed",
                "silver failed: do this",
            )
        assert set(sink.status.document()["tables"]) == {"silver", "gold/minutes"}
        await sink.job.ask(SINK, native.SinkReportRequest(1, b'{"silver": {"state": "running"}}'))
        assert (sink.status.worst_state(), sink.status.error) == (works, "")

    with_core(test)
    events = [one.msg for one in caplog.records]
    assert [one for one in events if "table" in one] == ["sink_table_failed", "sink_table_goes_on"]


def test_stopped_sink_ends_its_job_and_takes_its_keys_back() -> None:
    async def test(core: Core) -> None:
        sink = Sink(core, "s*")
        await core.settle()
        core.system.post(sink.cell, StopSink())
        await core.settle()
        assert sink.jobs[0].terminated
        # It may still have to connect, to save what its last batch committed.
        assert core.access.known("noise:1")
        sink.jobs[0].on_exit(0)
        await core.settle()
        assert not core.access.known("noise:1")
        core.clock.advance(100)
        await core.settle()
        assert len(sink.jobs) == 1

    with_core(test)


def test_the_end_of_a_former_instances_job_starts_none() -> None:
    async def test(core: Core) -> None:
        sink = Sink(core, "s*")
        await core.settle()
        instance = sink.cell.instance
        core.system.post(sink.cell, None)
        await core.settle()
        former = sink.jobs[0].on_exit
        core.system.exit(sink.cell)
        await core.settle()
        again = Sink(core, "s*")
        await core.settle()
        assert instance is not again.cell.instance
        former(1)
        await core.settle()
        core.clock.advance(100)
        await core.settle()
        assert (len(sink.jobs), len(again.jobs)) == (1, 1)

    with_core(test)


def test_keys_are_renewed_and_overlap() -> None:
    async def test(core: Core) -> None:
        Sink(core, "s*")
        await core.settle()
        for renewed in (2, 3):
            core.clock.advance(KEY_SECONDS + 1)
            await core.settle()
            assert core.access.known(f"noise:{renewed}")
            assert core.access.known(f"noise:{renewed - 1}")
        assert not core.access.known("noise:1")

    with_core(test)


def test_ends_name_every_partition_of_the_matching_streams() -> None:
    async def test(core: Core) -> None:
        friend = core.peer()
        await push(friend, "s1", b"a", b"b", partitions=2)
        await push(friend, "s2", b"c")
        await push(friend, "other", b"d")
        sink = Sink(core, "s1", "s2")
        answers = await sink.job.ask(SINK, native.SinkEndsRequest(5))
        assert [
            (end.stream, end.partition, end.first_index, end.next_index) for end in answers[0].ends
        ] == [
            ("s1", 0, 0, 2),
            ("s1", 1, 0, 0),
            ("s2", 0, 0, 1),
        ]
        assert sink.status.rows_behind == 3

    with_core(test)


def test_ranges_are_shipped_in_whole_blocks() -> None:
    async def test(core: Core) -> None:
        await push(core.peer(), "s", b"a", b"b", b"c")
        sink = Sink(core, "s")
        await sink.job.ask(SINK, native.SinkEndsRequest(1))
        answers = await sink.job.ask(SINK, native.SinkReadRequest(2, "s", 0, 1, 3, 65_536, 0))
        assert [block.first_index for block in answers[0].blocks] == [0]
        for stream, partition in (("s", 1), ("other", 0)):
            request = native.SinkReadRequest(3, stream, partition, 0, 9, 65_536, 0)
            answers = await sink.job.ask(SINK, request)
            assert answers[0].code == "stream.unknown"

    with_core(test)


def test_ranges_wait_until_the_job_takes_them() -> None:
    async def test(core: Core) -> None:
        await push(core.peer(), "s", b"a", b"b", b"c")
        sink = Sink(core, "s")
        await sink.job.ask(SINK, native.SinkEndsRequest(1))
        link = sink.job.links_up()
        link.buffered_bytes = LINK_BUFFER_HIGH_BYTES + 1
        request = native.SinkReadRequest(2, "s", 0, 1, 3, 65_536, 0)
        assert await sink.job.ask(SINK, request, request) == []
        link.buffered_bytes = 0
        core.clock.advance(LOOK_SECONDS)
        await core.settle()
        assert len(sink.job.answers) == 2

    with_core(test)


def test_commit_is_answered_when_the_positions_are_saved() -> None:
    async def test(core: Core) -> None:
        friend = core.peer()
        await push(friend, "s", b"a", b"b", b"c")
        sink = Sink(core, "s")
        await sink.job.ask(SINK, native.SinkEndsRequest(1))
        assert sink.status.committed_at is None
        commit = native.SinkCommitRequest(2, [native.SinkPosition("s", 0, 2, 0)])
        assert await sink.job.ask(SINK, commit) == [native.DoneResponse(2)]
        assert sink.status.committed_at == core.context.clock.now_ms()
        load = native.LoadIndexRequest(3, "sink/bronze", "s", 0)
        assert await friend.ask("stream_index", load) == [native.SavedIndexResponse(3, 2)]
        await sink.job.ask(SINK, native.SinkEndsRequest(4))
        assert sink.status.rows_behind == 1
        assert await sink.job.ask(SINK, native.SinkCommitRequest(5, [])) == [native.DoneResponse(5)]

    with_core(test)


def test_commit_that_cannot_be_saved_fails() -> None:
    async def test(core: Core) -> None:
        await push(core.peer(), "s", b"a")
        sink = Sink(core, "s")
        await sink.job.ask(SINK, native.SinkEndsRequest(1))
        core.store.faults.failing_syncs = 1
        commit = native.SinkCommitRequest(2, [native.SinkPosition("s", 0, 1, 0)])
        answers = await sink.job.ask(SINK, commit)
        assert (answers[0].code, answers[0].retryable) == ("store.failed", True)
        assert sink.status.committed_at is None

    with_core(test)


def test_lag_and_holds_survive_a_restart_of_the_node() -> None:
    async def test(core: Core) -> None:
        await push(core.peer(), "s", b"a", b"b", b"c")
        first = Sink(core, "s")
        await first.job.ask(SINK, native.SinkEndsRequest(1))
        await first.job.ask(SINK, native.SinkCommitRequest(2, [native.SinkPosition("s", 0, 2, 0)]))
        core.system.exit(first.cell)
        await core.settle()
        again = Sink(core, "s")
        await core.settle()
        assert core.holds.lowest(1 << 32) == 2
        core.clock.advance(MEASURE_SECONDS + 0.1)
        await core.settle()
        assert again.status.rows_behind == 1

    with_core(test)


def test_a_stream_made_anew_is_told_apart_and_held_from_its_beginning() -> None:
    async def test(core: Core) -> None:
        friend = core.peer()
        await push(friend, "s", b"a", b"b")
        sink = Sink(core, "s")
        before = (await sink.job.ask(SINK, native.SinkEndsRequest(1)))[0].ends[0]
        await sink.job.ask(SINK, native.SinkCommitRequest(2, [native.SinkPosition("s", 0, 2, 0)]))
        assert await friend.ask("stream", native.RemoveRequest(3, "s"))
        core.clock.advance(1.0)
        await push(friend, "s", b"c", b"d", b"e")
        after = (await sink.job.ask(SINK, native.SinkEndsRequest(4)))[0].ends[0]
        assert (before.next_index, after.next_index) == (2, 3)
        assert after.created_at == before.created_at + 1_000
        await core.settle()
        assert sink.status.rows_behind == 3
        assert core.holds.lowest(2 << 32) == 0

    with_core(test)


def test_a_commit_is_in_the_stream_that_it_names_or_nowhere() -> None:
    async def test(core: Core) -> None:
        friend = core.peer()
        await push(friend, "s", b"a", b"b")
        sink = Sink(core, "s")
        before = (await sink.job.ask(SINK, native.SinkEndsRequest(1)))[0].ends[0]
        assert await friend.ask("stream", native.RemoveRequest(3, "s"))
        await push(friend, "s", b"c", b"d", b"e")
        load = native.LoadIndexRequest(3, "sink/bronze", "s", 0)

        async def commit(index: int, created_at: int) -> int | None:
            """The position at the node after that."""
            position = native.SinkPosition("s", 0, index, created_at)
            request = native.SinkCommitRequest(2, [position])
            assert await sink.job.ask(SINK, request) == [native.DoneResponse(2)]
            saved: int | None = (await friend.ask("stream_index", load))[0].index
            return saved

        # Whether or not the sink has heard of the later one.
        assert await commit(2, before.created_at) is None
        after = (await sink.job.ask(SINK, native.SinkEndsRequest(4)))[0].ends[0]
        assert await commit(2, before.created_at) is None
        assert core.holds.lowest(2 << 32) == 0
        assert await commit(1, after.created_at) == 1
        assert core.holds.lowest(2 << 32) == 1

    with_core(test)


def test_a_range_of_a_stream_that_was_removed_is_all_lost() -> None:
    """Whatever else has the name now. Before the sink knows, the job is told where the log ends."""

    async def test(core: Core) -> None:
        friend = core.peer()
        await push(friend, "s", b"a", b"b")
        sink = Sink(core, "s")
        planned = (await sink.job.ask(SINK, native.SinkEndsRequest(1)))[0].ends[0]
        request = native.SinkReadRequest(2, "s", 0, 1, 2, 65_536, planned.created_at)
        assert (await sink.job.ask(SINK, request))[0].blocks
        assert await friend.ask("stream", native.RemoveRequest(3, "s"))
        core.clock.advance(1.0)
        ended = [native.BlocksResponse(2, 0, 0, [])]
        assert await sink.job.ask(SINK, request) == ended
        await push(friend, "s", b"c", b"d", b"e")
        assert await sink.job.ask(SINK, request) == ended
        lost = [native.BlocksResponse(2, 2, 2, [])]
        now = (await sink.job.ask(SINK, native.SinkEndsRequest(4)))[0].ends[0]
        assert await sink.job.ask(SINK, request) == lost
        for created_at in (now.created_at, 0):
            request = native.SinkReadRequest(2, "s", 0, 1, 2, 65_536, created_at)
            assert (await sink.job.ask(SINK, request))[0].blocks
        # Another node may have told of a later one.
        request = native.SinkReadRequest(2, "s", 0, 1, 2, 65_536, now.created_at + 1)
        (refused,) = await sink.job.ask(SINK, request)
        assert (refused.code, refused.retryable) == ("stream.unknown", True)

    with_core(test)


def test_everything_is_held_until_a_sink_knows_what_it_has() -> None:
    holds = Holds()
    assert holds.lowest(7) is None
    hold = holds.add("bronze")
    assert holds.lowest(7) == 0
    hold.committed[7] = 5
    hold.known = True
    assert (holds.lowest(7), holds.lowest(8)) == (5, None)
    hold.released = True
    assert holds.lowest(7) is None


def test_a_sink_too_far_behind_holds_nothing_until_it_has_caught_up() -> None:
    async def test(core: Core) -> None:
        await push(core.peer(), "s", bytes(600), bytes(600))
        sink = Sink(core, "s", hold_bytes_max=1_000)
        await sink.job.ask(SINK, native.SinkEndsRequest(1))
        assert core.holds.lowest(1 << 32) is None
        commit = native.SinkCommitRequest(2, [native.SinkPosition("s", 0, 1, 0)])
        await sink.job.ask(SINK, commit)
        await sink.job.ask(SINK, native.SinkEndsRequest(3))
        assert core.holds.lowest(1 << 32) == 1

    with_core(test)


def test_only_its_job_and_administrators_are_answered() -> None:
    async def test(core: Core) -> None:
        await push(core.peer(), "s", b"a")
        Sink(core, "s")
        stranger = core.peer("noise:aa")
        answers = await stranger.ask(SINK, native.SinkEndsRequest(1))
        unknown = await stranger.ask("sink/none", native.SinkEndsRequest(1))
        assert answers == unknown
        assert answers[0].code == "address.unknown"
        assert (await core.peer().ask(SINK, native.SinkEndsRequest(1)))[0].ends

    with_core(test)


@pytest.mark.parametrize("document", [b"", b"[]", b"{", b'{"a": "' + b"x" * 70_000 + b'"}'])
def test_reports_are_small_json_objects(document: bytes) -> None:
    async def test(core: Core) -> None:
        sink = Sink(core, "s")
        answers = await sink.job.ask(SINK, native.SinkReportRequest(1, document))
        assert answers[0].code == "sink.report"

    with_core(test)


def test_garbage_is_answered() -> None:
    async def test(core: Core) -> None:
        sink = Sink(core, "s")
        answers: list[Any] = await sink.job.ask(SINK, native.StatusRequest(1))
        assert answers[0].code == "request.invalid"
        sink.job.send(SINK, b"garbage")
        await core.settle()

    with_core(test)


@pytest.mark.parametrize(
    ("patterns", "prefix"),
    [
        (("a*",), "a"),
        (("abc", "abd"), "ab"),
        (("sensors-?", "sensors-*"), "sensors-"),
        (("*", "abc"), ""),
        ((), ""),
    ],
)
def test_literal_prefix_begins_every_match(patterns: tuple[str, ...], prefix: str) -> None:
    assert literal_prefix(patterns) == prefix


# Failures ----------------------------------------------------------------------------------------

ASKED: dict[str, native.Request] = {
    "ends": native.SinkEndsRequest(7),
    "read": native.SinkReadRequest(7, "s", 0, 0, 3, 65_536, 0),
    "commit": native.SinkCommitRequest(7, [native.SinkPosition("s", 0, 2, 0)]),
    "report": native.SinkReportRequest(7, b"{}"),
}

at_both_times = pytest.mark.parametrize("when", get_args(When))


@at_both_times
@pytest.mark.parametrize(
    ("name", "message"),
    [
        *((name, Delivery) for name in ASKED),
        ("ends", ListStreams),
        ("read", Read),
        ("commit", SaveIndex),
    ],
)
def test_what_the_job_asks_has_one_outcome_where_the_sink_fails(
    name: str, message: type, when: When, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def test(core: Core) -> None:
        await push(core.peer(), "s", b"a", b"b", b"c")
        # What is read comes later, as from a store that is not in memory.
        read = core.store.read

        def later(asked: ReadOperation) -> bool:
            if read(asked):
                core.complete(asked)
            return False

        monkeypatch.setattr(core.store, "read", later)
        sink = Sink(core, "s")
        await sink.job.ask(SINK, native.SinkEndsRequest(1))
        failing = IndexService if message is SaveIndex else SparkSinkActor
        with fail(failing, message, when=when) as fault:
            answers = await sink.job.ask(SINK, ASKED[name])
        assert fault.hits == 1
        assert [answer.request_id for answer in answers] == [7]
        if when == "before" and message is not Read:
            assert isinstance(answers[0], native.Failure)
        # It begins anew, with a job of its own.
        await sink.job.ask(SINK, native.SinkEndsRequest(1))
        for request in ASKED.values():
            (answer,) = await sink.job.ask(SINK, request)
            assert not isinstance(answer, native.Failure)
        assert core.holds.lowest(1 << 32) == 2
        assert sink.jobs[-1].pid == sink.status.pid
        assert [job.terminated for job in sink.jobs[:-1]] == [True] * (len(sink.jobs) - 1)
        assert list(remembered(core.system)) == []

    with_core(test)


@at_both_times
@pytest.mark.parametrize("name", ["_Exited", "_Start", "_Measure", "_RenewKey"])
def test_a_sink_that_fails_at_what_it_does_by_itself_goes_on(name: str, when: When) -> None:
    (kind,) = (one for one in message_types(SparkSinkActor) or () if one.__name__ == name)

    async def test(core: Core) -> None:
        friend = core.peer()
        await push(friend, "s", b"a")
        sink = Sink(core, "s")
        await core.settle()
        with fail(SparkSinkActor, kind, when=when) as fault:
            sink.jobs[-1].on_exit(1)
            for seconds in (0.0, *BACKOFF_SECONDS[:1], MEASURE_SECONDS, KEY_SECONDS):
                core.clock.advance(seconds + 0.1)
                await core.settle()
        assert fault.hits == 1
        core.clock.advance(max(BACKOFF_SECONDS))
        await core.settle()
        assert sink.status.pid == sink.jobs[-1].pid
        await push(friend, "s", b"b")
        core.clock.advance(MEASURE_SECONDS + 0.1)
        await core.settle()
        assert sink.status.rows_behind == 2
        # Its key does not end.
        keys = sink.keys
        core.clock.advance(KEY_SECONDS)
        await core.settle()
        assert sink.keys > keys

    with_core(test)


@at_both_times
def test_a_sink_that_fails_when_it_is_to_stop_leaves_one_job_at_most(when: When) -> None:
    async def test(core: Core) -> None:
        sink = Sink(core, "s")
        await core.settle()
        with fail(SparkSinkActor, StopSink, when=when) as fault:
            core.system.post(sink.cell, StopSink())
            await core.settle()
        assert fault.hits == 1
        core.system.post(sink.cell, StopSink())
        await core.settle()
        assert all(job.terminated for job in sink.jobs)

    with_core(test)
