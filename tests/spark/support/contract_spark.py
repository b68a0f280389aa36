"""A sink, whose job is a program, in the load on simulated nodes."""

import asyncio
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Final, TypeVar
from weakref import WeakValueDictionary

import pytest

from contract_load import NODE, Part, Round
from rillnode.actors.core.threads import Threads
from rillnode.actors.spark import sink_job
from rillnode.codecs import native
from rillnode.codecs.entries import entries_of
from rillnode.node.client.session import Session
from rillnode.node.config import Config, PlugInTable
from rillnode.node.keys.files import read_key
from rillnode.node.simulation.application import PROGRAM
from rillnode.node.spark import process
from rillnode.node.spark.config import FilesSink, SinkTables
from rillnode.node.spark.sinks import Sinks

T = TypeVar("T")

SINK: Final = "bronze"
STREAM: Final = "landed"
SINKS: Final = SinkTables(
    files=(FilesSink(name=SINK, streams=(STREAM,), directory=Path("unused")),)
)
KEY_SECONDS: Final = 20.0
"""How long a sink's job has a key, instead of an hour."""
STARTED_SECONDS: Final = 3.0
"""Virtual time in which a job is started again that has ended once, or that is to run again."""


class Job:
    """A process that is none: a round does its work."""

    pid = 1
    last_words = "as told [job.ended]"

    def __init__(self, on_exit: Callable[[int], None]) -> None:
        self._loop = asyncio.get_running_loop()
        self._on_exit = on_exit
        self.runs = True

    def terminate(self) -> None:
        """End after the batch that it is in."""
        self._end(0)

    def kill(self) -> None:
        """End at once."""
        self._end(-9)

    def _end(self, code: int) -> None:
        if self.runs:
            self.runs = False
            self._loop.call_soon(self._on_exit, code)


_JOBS: Final = WeakValueDictionary[Path, Job]()
"""The last job of each sink, by where it finds its key, as long as the sink has it."""


def launcher(
    config: Config,
    identity: str,
    address: str,
    key_path: Callable[[str], Path],
    threads: Threads,
) -> Callable[[str, dict[str, str], Callable[[int], None]], Job]:
    """What starts such jobs, in the place of `rillnode.node.spark.process.launcher`."""

    def launch(sink: str, environment: dict[str, str], on_exit: Callable[[int], None], /) -> Job:
        job = _JOBS[key_path(sink)] = Job(on_exit)
        return job

    return launch


class Sink(Round):
    """Pushes, and lands what was pushed, as a sink's job does, which is killed then and paused."""

    async def talk(self) -> None:
        async with await self.ask("connect", self.network.client(NODE)) as client:
            stream = await self.ask("create", client.stream(STREAM))
            data = b"landed %d" % self.number
            if await self.once("push", stream.push(data)) is not None:
                self.confirmed.append(data)
            await self._land()
            if (job := self._job) is not None:
                job.kill()
            await asyncio.sleep(STARTED_SECONDS)
            for run in (False, True):
                await self.once("control", client.run_sink(SINK, run=run))
            await asyncio.sleep(STARTED_SECONDS)
        if self.strict:
            job = self._job
            assert job is not None
            assert job.runs, "the job is not started again"

    @property
    def _sinks(self) -> Sinks:
        sinks = self.network.running(NODE).observed.plug_in(Sinks)
        assert sinks is not None
        return sinks

    @property
    def _job(self) -> Job | None:
        return _JOBS.get(self._sinks.key_path(SINK))

    async def _session(self) -> Session:
        """Connect with the key that the job was given last."""
        world = self.network._world  # pyright: ignore[reportPrivateUsage]
        machine = world.machines[PROGRAM]
        key = read_key(self._sinks.key_path(SINK))
        expected = self.network.running(NODE).identity
        session = world.session(machine, NODE, identity=key, expected=expected)
        await session.open()
        return session

    async def _land(self) -> None:
        """Do one batch: look how far the stream goes, read it, and commit that."""
        session = await self.ask("connect", self._session())
        try:
            for end in await self.ask("ends", self._ends(session)):
                await self.ask("read", self._read(session, end))
                position = native.SinkPosition(end.stream, 0, end.next_index, end.created_at)
                commit = native.SinkCommitRequest(session.next_id(), [position])
                await self.ask("commit", self._request(session, commit, native.DoneResponse))
                self.saved(end.next_index)
            await self.once(
                "report",
                self._request(
                    session,
                    native.SinkReportRequest(session.next_id(), b"{}"),
                    native.DoneResponse,
                ),
            )
        finally:
            await self.ask("close", session.close())

    async def _request(self, session: Session, request: native.Request, kind: type[T]) -> T:
        return await session.request(f"sink/{SINK}".encode(), request, kind)

    async def _ends(self, session: Session) -> list[native.SinkEnd]:
        request = native.SinkEndsRequest(session.next_id())
        response = await self._request(session, request, native.SinkEndsResponse)
        return list(response.ends)

    async def _read(self, session: Session, end: native.SinkEnd) -> list[bytes]:
        found: list[bytes] = []
        index = end.first_index
        while index < end.next_index:
            request = native.SinkReadRequest(
                session.next_id(), end.stream, 0, index, end.next_index, 65_536, end.created_at
            )
            response = await self._request(session, request, native.BlocksResponse)
            for block in native.blocks_of(response):
                found += (bytes(entry.data) for entry in entries_of(block, first=index))
                index = block.next_index
        return found

    async def check(self) -> None:
        session = await self.ask("connect", self._session())
        try:
            (end,) = await self._ends(session)
            found = await self._read(session, end)
            assert set(self.confirmed) <= set(found), "what was confirmed is lost"
        finally:
            await session.close()
        async with await self.network.client(NODE) as client:
            self.saved(await client.get_index(f"sink/{SINK}", STREAM) or 0)


class SparkPart(Part):
    """A sink, and its job; nodes have none unless somebody has to do with that."""

    rounds = (Sink,)

    def tables(self, node: str, rounds: Sequence[type[Round]]) -> Sequence[PlugInTable]:
        kinds = {one.__name__ for one in rounds}
        return (SINKS,) if kinds & {"Sink", "Stopped"} else ()

    def quicken(self, patch: pytest.MonkeyPatch) -> None:
        patch.setattr(process, "launcher", launcher)
        patch.setattr(sink_job, "KEY_SECONDS", KEY_SECONDS)


PART: Final = SparkPart()
