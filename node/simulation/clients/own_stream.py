"""Streams of a client's own: one is filled, followed, trimmed, removed, and made again.

What nobody else uses can be compared exactly with what its only user has done. Others keep only so
much, and what goes is compared with their limits.
"""

import asyncio
from collections.abc import Mapping, Sequence
from contextlib import aclosing
from functools import partial
from typing import Final

from rillnode.actors.core.streams.context import stream_address
from rillnode.codecs import native
from rillnode.codecs.entries import Entry, pack_body
from rillnode.codecs.errors import RequestError, RillnodeError
from rillnode.codecs.routing.routes import local
from rillnode.node.client.client import Client
from rillnode.node.client.stream import Stream, StreamInfo
from rillnode.node.simulated.history import EPOCH_MS, History
from rillnode.node.simulated.nodes import (
    KEPT_BYTES,
    KEPT_ENTRIES,
    KEPT_PREFIX,
    KEPT_SECONDS,
)
from rillnode.node.simulated.programs import CALL_SECONDS, Program

ENTRIES: Final = 6
"""How many a round pushes, and may leave."""

LATE_ENTRIES: Final = 3
"""How many are pushed while the stream is removed."""

PARTITIONS: Final = 2

CATCH_UP_SECONDS: Final = 60.0
"""How long a subscription may take to bring what was pushed: longer than a fault lasts."""

LOOK_SECONDS: Final = 0.1

BEYOND_PART: Final = 0.25
"""In how many rounds it is tried to use a partition that is not there."""


class Watcher:
    """Somebody who follows a partition from its first entry until the stream is no more.

    Args:
        stream: the stream.
        partition: the partition.
        first: the first index that is kept, when it begins.

    Attributes:
        seen: what has come, by index.
        ended: the code of the error that it ended with; empty: it goes on.
        disorder: an index that has come twice, or too late.
        first: as given.
    """

    def __init__(self, stream: Stream, partition: int, first: int = 0) -> None:
        self.first = first
        self.seen: dict[int, bytes] = {}
        self.ended = ""
        self.disorder: int | None = None
        self._task = asyncio.get_running_loop().create_task(self._follow(stream, partition))

    def close(self) -> None:
        """Follow no more."""
        self._task.cancel()

    async def _follow(self, stream: Stream, partition: int) -> None:
        try:
            async with aclosing(stream.batches(partitions=(partition,))) as batches:
                async for batch in batches:
                    for entry in batch:
                        if entry.index <= max(self.seen, default=-1):
                            self.disorder = entry.index
                        self.seen[entry.index] = bytes(entry.data)
        except RillnodeError as error:
            self.ended = error.code


class OwnStream:
    """The stream of one client's process; `examine` is one round of its life.

    Whoever follows it does so in that process: the next one, which finds the stream as it was left,
    takes another of these.

    Attributes:
        waits_for: what must come; empty: nothing.
    """

    def __init__(self, program: Program) -> None:
        self._program = program
        self._history = program.share.history
        self._random = program.random
        self._chance = program.share.world.network.random(f"own stream of {program.life}")
        self._name = f"own-{program.name}"
        self._rounds = 0
        self._watchers: list[Watcher] = []
        self._stream: Stream | None = None
        self._partition = 0
        self._made_at = 0
        self.waits_for = ""

    def close(self) -> None:
        """The client's connection is over: nobody follows any more."""
        self.waits_for = ""
        self._stream = None
        watchers, self._watchers = self._watchers, []
        for watcher in watchers:
            watcher.close()

    async def examine(self, client: Client) -> None:
        """Remove, push, trim, read, follow; what one round has made, the next must not see."""
        self._rounds += 1
        await self._remove(client)
        part = self._partition = self._random.randrange(PARTITIONS)
        stream = self._stream = await self._make(client)
        self._watchers.append(Watcher(stream, part))
        mark = f"{self._program.life} {self._rounds} ".encode()
        where = await self._fill(stream, [mark + b"%d" % number for number in range(ENTRIES)])
        found = await stream.pull(0, 10 * ENTRIES, partition=part)
        if any(not entry.data.startswith(mark) for entry in found):
            self._broken("removed-served", "has an entry of before it was removed")
        # Half of it, or all that there is.
        keep = self._random.choice((sorted(where)[ENTRIES // 2], max(where) + 1))
        trim = client.trim(self._name, partition=part, before=keep)
        pushed = {index: mark + b"%d" % number for index, number in where.items() if index >= keep}
        # What is pushed stores where the log begins: a trim must be stored without that, too.
        if self._random.choice((True, False)):
            meanwhile = mark + b"meanwhile"
            kept, index = await asyncio.gather(trim, stream.push(meanwhile, partition=part))
            pushed[index] = meanwhile
        else:
            kept = await trim
        if kept != keep and not self._lost:
            self._broken("trimmed", f"was to begin at {keep}, begins at {kept}")
        await self._read(client, stream, keep, pushed)
        self._watchers.append(Watcher(stream, part, keep))
        last = mark + b"last"
        pushed[await stream.push(last, partition=part)] = last
        for watcher in self._watchers:
            await self._brings(watcher, keep, pushed)
        await self._push_nonsense(client)
        if self._chance.random() < BEYOND_PART:
            await self._use_beyond(client)
        await self._read(client, stream, keep, pushed)
        if self._chance.random() < BEYOND_PART:
            await self._trim_beyond(client, stream, max(pushed) + 1)

    async def _fill(self, stream: Stream, entries: list[bytes]) -> dict[int, int]:
        """Push entries one by one, or in a block that a trim may cut; the number at each index."""
        if self._chance.choice((True, False)):
            end = await stream.push_many(entries, partition=self._partition)
            return {end - len(entries) + number: number for number in range(len(entries))}
        return {
            await stream.push(entry, partition=self._partition): number
            for number, entry in enumerate(entries)
        }

    @property
    def _lost(self) -> bool:
        """Whether nothing is promised any more."""
        return self._program.log_name in self._history.lost

    @property
    def _dials(self) -> int:
        return self._program.share.world.network.dials[self._program.name]

    @property
    def _now_ms(self) -> int:
        """What a clock that is right shows."""
        return EPOCH_MS + int(self._history.now() * 1_000)

    def _broken(self, rule: str, text: str) -> None:
        program = self._program
        self._history.broken(rule, f"{program.name} at {program.node}: {self._name} {text}")

    async def _remove(self, client: Client) -> None:
        """Remove the stream, if there is one: whoever follows it is told."""
        stream = self._stream
        # A push tells the stream that it is no more; followers must hear of it without any.
        meanwhile = self._random.choice((stream, None))
        pushing = asyncio.get_running_loop().create_task(self._push_on(meanwhile))
        try:
            await client.remove(self._name)
        except RequestError as error:
            self._history.note(self._program.name, "refused", error.code)
            if error.code != "stream.unknown":  # it is the first, or this was asked twice
                raise
        else:
            await self._wait_until_ended()
            await pushing
            await self._push_on(stream, removed=True)
        finally:
            pushing.cancel()
        self.close()

    async def _wait_until_ended(self) -> None:
        self.waits_for = "those who follow a stream that was removed are not told"
        for _ in range(int(CATCH_UP_SECONDS / LOOK_SECONDS)):
            going_on = any(not watcher.ended for watcher in self._watchers)
            if not going_on or self._lost:
                return
            await asyncio.sleep(LOOK_SECONDS)
        self._broken("removed-served", "is removed, and those who follow it are not told")

    async def _push_on(self, stream: Stream | None, *, removed: bool = False) -> None:
        """Push to a stream that is removed meanwhile, or was: it is refused then."""
        if stream is None:
            return
        try:
            for _ in range(LATE_ENTRIES):
                await stream.push(b"late", partition=self._partition)
                if removed and not self._lost:
                    self._broken("removed-served", "is removed, and takes an entry")
        except RillnodeError as error:
            self._history.note(self._program.name, "refused", error.code)

    async def _push_nonsense(self, client: Client) -> None:
        """Push what is no entries: it is refused."""
        route = (local(stream_address(self._name, self._partition)),)
        payload = native.encode(native.AppendRequest(1, ENTRIES, self._random.randbytes(9)))
        try:
            await client.ask(route, payload, timeout_seconds=CALL_SECONDS)
        except RequestError as error:
            self._history.note(self._program.name, "refused", error.code)
        else:
            self._broken("unknown-entry", "has taken entries that are none")

    async def _use_beyond(self, client: Client) -> None:
        """Push to the partition after the last, and trim it: it is not there."""
        route = (local(stream_address(self._name, PARTITIONS)),)
        request = native.AppendRequest(1, 1, pack_body([b"beyond"]))
        payload = native.encode(request)
        for use in (
            partial(client.ask, route, payload, timeout_seconds=CALL_SECONDS),
            partial(client.trim, self._name, partition=PARTITIONS, before=1),
        ):
            try:
                await use()
            except RequestError as error:
                self._history.note(self._program.name, "refused", error.code)
            else:
                self._broken("stream-changed", f"has more than {PARTITIONS} partitions")

    async def _trim_beyond(self, client: Client, stream: Stream, end: int) -> None:
        """Trim more than there is: all goes, and the next entry stands where it would have."""
        dials, part = self._dials, self._partition
        first = await client.trim(self._name, partition=part, before=end + 1_000)
        index = await stream.push(b"behind", partition=part)
        if first != index and dials == self._dials and not self._lost:
            self._broken("trimmed", f"begins at {first} when all has gone, goes on at {index}")

    async def _make(self, client: Client) -> Stream:
        """Make the stream anew, and open it as one who knows less of it."""
        began = self._now_ms
        await client.stream(self._name, partitions=PARTITIONS)
        stream = await client.stream(self._name)
        self._made_at = (await client.describe(self._name)).created_at
        on_time = began <= self._made_at <= self._now_ms or self._history.clocks_wrong
        if not on_time and not self._lost:
            self._broken("stream-changed", f"was made after {began}, it says {self._made_at}")
        if stream.partitions != PARTITIONS and not self._lost:
            self._broken("stream-changed", f"had {PARTITIONS} partitions, has {stream.partitions}")
        who = f"{self._program.name}-own"
        saved = await client.get_index(who, self._name, partition=self._partition)
        if saved is not None and not self._lost:
            self._broken("removed-served", f"is new, and {who} has a position in it: {saved}")
        await client.set_index(who, self._name, ENTRIES, partition=self._partition)
        await self._positions(client)
        return stream

    async def _positions(self, client: Client) -> None:
        """List what is saved: one position, of one partition."""
        saved = [
            (one.stream, one.partition, one.client_id, one.index)
            for one in await client.indexes(self._name)
        ]
        position = (self._name, self._partition, f"{self._program.name}-own", ENTRIES)
        if saved != [position] and not self._lost:
            self._broken("saved-index-lost", f"has the position {position}, listed are {saved}")

    async def _read(
        self, client: Client, stream: Stream, keep: int, pushed: dict[int, bytes]
    ) -> None:
        """Read it whole, twice: it holds what was pushed from the first entry kept on."""
        before: dict[int, bytes] | None = None
        info: StreamInfo | None = None
        for _ in range(2):
            entries = await stream.pull(0, 10 * ENTRIES, partition=self._partition)
            found = {entry.index: bytes(entry.data) for entry in entries}
            self._history.note(
                self._program.name, "examined", f"{min(found, default=0)} {len(found)}"
            )
            if self._lost:
                return
            if min(found, default=keep) < keep:
                self._broken("trimmed", f"was trimmed to {keep}, has {min(found)}")
            for index, data in pushed.items():
                if found.get(index) != data:
                    self._broken("confirm-lost", f"{index} is not what was pushed")
            if info is not None and found == before:
                self._compare(info, found)
            if info is None:
                before, info = found, await client.describe(self._name)
                await asyncio.sleep(self._random.uniform(0.0, 1.0))

    def _compare(self, info: StreamInfo, found: dict[int, bytes]) -> None:
        """Compare what a node tells of the stream with what was read before and after it."""
        part = info.partitions[self._partition]
        told = (part.next_index - part.first_index, part.data_bytes)
        owner = f"noise:{self._program.machine.identity.public_hex}"
        here = (len(found), sum(map(len, found.values())))
        if told != here or part.first_index != min(found, default=part.first_index):
            self._broken("stream-changed", f"has {here} entries and bytes, it is said: {part}")
        if (info.owner, info.created_at) != (owner, self._made_at):
            self._broken("stream-changed", f"is another: {info.owner}, {info.created_at}")

    async def _brings(self, watcher: Watcher, keep: int, pushed: dict[int, bytes]) -> None:
        """Wait until a subscription has brought what was pushed last, and all before it."""
        self.waits_for = f"{max(pushed)} is not brought to who follows {self._name}"
        for _ in range(int(CATCH_UP_SECONDS / LOOK_SECONDS)):
            if max(pushed) in watcher.seen or self._lost:
                break
            await asyncio.sleep(LOOK_SECONDS)
        else:
            self._broken("no-progress", f"{max(pushed)} is not brought to who follows it")
            return
        self.waits_for = ""
        if self._lost:
            return
        if watcher.disorder is not None:
            self._broken("subscription-duplicate", f"{watcher.disorder} was brought again")
        if min(watcher.seen) < watcher.first:
            text = f"was trimmed to {watcher.first}, brings {min(watcher.seen)}"
            self._broken("trimmed", text)
        for index, data in pushed.items():
            if index not in watcher.seen:
                self._broken("subscription-gap", f"{index} was not brought, {keep} is the first")
            elif watcher.seen[index] != data:
                self._broken("index-reassigned", f"{index} is not what was pushed there")


PUSHED_MAX: Final = 8
ENTRY_BYTES: Final = 10
PULL_ENTRIES: Final = 1_000


KINDS: Final = ("entries", "bytes", "seconds")
"""What may limit a stream."""


class LimitedStream:
    """The streams of one client; `examine` pushes to one of them, and looks what is kept.

    Others rest meanwhile, over a start of the node perhaps: what is over a limit goes all the same.
    """

    def __init__(self, program: Program) -> None:
        self._program = program
        self._history = program.share.history
        self._random = program.random
        self._name, self._partition = "", 0
        self._pushed_at: dict[tuple[str, int], dict[int, float]] = {}

    async def examine(self, client: Client) -> None:
        """Push some entries; what went before them must have been over the limit."""
        kind = self._random.choice(KINDS)
        self._name = f"{KEPT_PREFIX}{kind}-{self._program.name}"
        part = self._partition = self._random.randrange(PARTITIONS)
        stream = await client.stream(self._name, partitions=PARTITIONS)
        now, count = self._history.now(), self._random.randrange(1, PUSHED_MAX + 1)
        end = await stream.push_many([bytes(ENTRY_BYTES)] * count, partition=part)
        pushed_at = self._pushed_at.setdefault((self._name, part), {})
        pushed_at.update(dict.fromkeys(range(end - count, end), now))
        self._check_kept(await stream.pull(0, PULL_ENTRIES, partition=part), pushed_at)

    def _check_kept(self, entries: Sequence[Entry], pushed_at: Mapping[int, float]) -> None:
        """The last that has gone is over the limit, together with all that is left."""
        if self._program.log_name in self._history.lost:
            return
        first = entries[0].index if entries else max(pushed_at) + 1
        if first == 0:
            return
        since = self._history.now() - pushed_at.get(first - 1, float("-inf"))
        over = {
            "entries": len(entries) >= KEPT_ENTRIES,
            "bytes": sum(len(entry.data) for entry in entries) + ENTRY_BYTES > KEPT_BYTES,
            "seconds": since > KEPT_SECONDS or self._history.clocks_wrong,
        }
        if not over[self._name.split("-")[1]]:
            where = f"{self._name}/{self._partition} at {self._program.node}"
            text = f"{where}: {first - 1} has gone too early"
            self._history.broken("retained", text)


def check_limited(history: History, node: str, streams: Sequence[StreamInfo]) -> None:
    """When all has been quiet for long, what is over its limit has gone, and nothing else."""
    for info, part in [(one, part) for one in streams for part in one.partitions]:
        limits = info.retention
        count = part.next_index - part.first_index
        most = KEPT_BYTES // ENTRY_BYTES if limits.entries_max is None else KEPT_ENTRIES
        if limits.seconds is not None:
            most = count if history.clocks_wrong else 0
        if count > most or (part.first_index > 0 and count < most):
            where = f"{info.name}/{part.partition} at {node}"
            text = f"{where} keeps {count} entries, {most} are due"
            history.broken("retained", text)
