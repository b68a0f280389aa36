"""Streams of a client's own that keep only so much."""

from collections.abc import Mapping, Sequence
from typing import Final

from rillnode.codecs.entries import Entry
from rillnode.node.client.client import Client
from rillnode.node.client.stream import StreamInfo
from rillnode.node.simulated.history import History
from rillnode.node.simulated.nodes import (
    KEPT_BYTES,
    KEPT_ENTRIES,
    KEPT_PREFIX,
    KEPT_SECONDS,
)
from rillnode.node.simulated.programs import Program

PUSHED_MAX: Final = 8
ENTRY_BYTES: Final = 10
PULL_ENTRIES: Final = 1_000


KINDS: Final = ("entries", "bytes", "seconds")
"""What may limit a stream."""

PARTITIONS: Final = 2


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
