"""A stream of a client's own that keeps only so much."""

from collections.abc import Sequence
from typing import Final

from rillnode.codecs.entries import Entry
from rillnode.node.client.client import Client
from rillnode.node.client.stream import StreamInfo
from rillnode.node.simulation.clients import Program
from rillnode.node.simulation.history import History
from rillnode.node.simulation.node_configs import (
    KEPT_BYTES,
    KEPT_ENTRIES,
    KEPT_PREFIX,
    KEPT_SECONDS,
)

PUSHED_MAX: Final = 8
ENTRY_BYTES: Final = 10
PULL_ENTRIES: Final = 1_000


class LimitedStream:
    """The stream of one client; `examine` pushes to it, and looks what is kept."""

    def __init__(self, program: Program) -> None:
        self._program = program
        self._history = program.share.history
        self._random = program.random
        kind = self._random.choice(("entries", "bytes", "seconds"))
        self._name = f"{KEPT_PREFIX}{kind}-{program.name}"
        self._pushed_at: dict[int, float] = {}

    async def examine(self, client: Client) -> None:
        """Push some entries; what went before them must have been over the limit."""
        stream = await client.stream(self._name)
        now, count = self._history.now(), self._random.randrange(1, PUSHED_MAX + 1)
        end = await stream.push_many([bytes(ENTRY_BYTES)] * count)
        self._pushed_at.update(dict.fromkeys(range(end - count, end), now))
        self._check_kept(await stream.pull(0, PULL_ENTRIES))

    def _check_kept(self, entries: Sequence[Entry]) -> None:
        """The last that has gone is over the limit, together with all that is left."""
        if self._program.log_name in self._history.lost or not self._pushed_at:
            return
        first = entries[0].index if entries else max(self._pushed_at) + 1
        if first == 0:
            return
        since = self._history.now() - self._pushed_at.get(first - 1, float("-inf"))
        over = {
            "entries": len(entries) >= KEPT_ENTRIES,
            "bytes": sum(len(entry.data) for entry in entries) + ENTRY_BYTES > KEPT_BYTES,
            "seconds": since > KEPT_SECONDS or self._history.clocks_wrong,
        }
        if not over[self._name.split("-")[1]]:
            text = f"{self._name} at {self._program.node}: {first - 1} has gone too early"
            self._history.broken("retained", text)


def check_limited(history: History, node: str, streams: Sequence[StreamInfo]) -> None:
    """When all has been quiet for long, what is over its limit has gone, and nothing else."""
    for info in streams:
        part, limits = info.partitions[0], info.retention
        count = part.next_index - part.first_index
        most = KEPT_BYTES // ENTRY_BYTES if limits.entries_max is None else KEPT_ENTRIES
        if limits.seconds is not None:
            most = count if history.clocks_wrong else 0
        if count > most or (part.first_index > 0 and count < most):
            text = f"{info.name} at {node} keeps {count} entries, {most} are due"
            history.broken("retained", text)
