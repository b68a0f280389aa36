"""Reads the partitions of a work queue's stream, in pieces that are ahead of what is given.

So many small rounds cost few reads. Entries come in the order of their partition, without a gap but
for what the stream does not keep any more, and all partitions have their turns.
"""

from collections import deque
from collections.abc import Sequence
from typing import Final

from rillnode.actors.core.queues.context import QueueContext, Run
from rillnode.actors.core.queues.state import Place, QueueState, key_number
from rillnode.actors.log import Read, StreamRecord, logs_of
from rillnode.actors.log.waiting import read
from rillnode.codecs.cutting import Cut, CutBlock
from rillnode.codecs.entries import Entry, decode_header

READ_BYTES: Final = 262_144
AHEAD_MAX: Final = 16
"""Of so many partitions so much is read before it is looked at."""

AHEAD_SECONDS: Final = 1.0
"""After this long what was read is read again: another node may have trimmed the stream."""


class Ahead:
    """Blocks of a partition that were read and not looked at yet, and where they go on."""

    __slots__ = ("_blocks", "_entries", "good_until", "index")

    def __init__(self) -> None:
        self._blocks: deque[CutBlock] = deque()
        self._entries: list[Entry] = []  # of the first block, once one of them is read
        self.index = 0
        self.good_until = 0.0

    def __len__(self) -> int:
        """How many entries there are."""
        return self._blocks[-1].next_index - self.index if self._blocks else 0

    def clear(self) -> None:
        """Forget what was read."""
        self._blocks.clear()
        self._entries = []

    def add(self, blocks: Sequence[CutBlock]) -> None:
        """Take blocks that were read."""
        self._blocks += blocks

    def pass_to(self, index: int) -> None:
        """Go on with an entry, or with the first that is there behind it."""
        while self._blocks and self._blocks[0].next_index <= index:
            self._blocks.popleft()
            self._entries = []
        self.index = index

    def take(self, partition: int, count: int, size: int) -> Run:
        """The next entries, so many and so many bytes at most, but at least one; all of a kind.

        They are given for the first time.
        """
        first, taken, taken_bytes = self.index, list[Cut](), 0
        kind = self._blocks[0].header.kind
        while count and self._blocks and self._blocks[0].header.kind is kind:
            block = self._blocks[0]
            start = self.index - block.block.first_index
            stop = min(block.header.count, start + count)
            cut = Cut(block, start, stop).within(size - taken_bytes)
            cut_bytes = cut.size
            if taken and taken_bytes + cut_bytes > size:
                break
            taken.append(cut)
            taken_bytes += cut_bytes
            count -= cut.stop - start
            self.pass_to(self.index + cut.stop - start)
            if cut.stop < stop:
                break
        return Run(partition, 1, first, self.index - first, taken_bytes, taken)

    def take_entry(self) -> tuple[Cut, Entry]:
        """The next entry, which is read."""
        block = self._blocks[0]
        first = block.block.first_index
        if not self._entries:
            self._entries = Cut(block, 0, block.header.count).entries()
        number = self.index - first
        entry = self._entries[number]
        self.pass_to(self.index + 1)
        return Cut(block, number, number + 1), entry


class Partitions:
    """The stream of a queue, as far as it is read.

    Attributes:
        record: of the stream, as the queue has found it last.
        logs: of its partitions.
        ends: where these end, as far as that was seen.
    """

    def __init__(self, queue: QueueContext) -> None:
        self._queue = queue
        self.record: StreamRecord | None = None
        self.logs: list[int] = []
        self.ends: list[int] = []
        self._ahead: list[Ahead] = []
        self._turn = 0
        self._is_following = False

    def open(self, record: StreamRecord) -> None:
        """Read this stream from now on; what was read before is forgotten."""
        is_other = self.record is None or self.record.id != record.id
        self.record = record
        if is_other or len(self.logs) != record.partitions:
            if not is_other:
                self.follow(False)
            self.logs = logs_of(record.id, record.partitions)
            self.ends = [0] * record.partitions
        self._ahead = [Ahead() for _ in self.logs]

    def follow(self, on: bool) -> None:
        """Hear of growth, or not, where nobody works: an idle queue's actor is to end."""
        if on is self._is_following:
            return
        self._is_following = on
        followers = self._queue.shared.followers
        for log in self.logs:
            if on:
                followers.add(log, self._queue.cell)
            else:
                followers.remove(log, self._queue.cell)

    # Entries that were not looked at ---------------------------------------------------------

    def next_in_turn(self) -> int:
        """The partition whose turn it is."""
        partition = self._turn % len(self.logs)
        self._turn += 1
        return partition

    async def next_entries(self, state: QueueState, partition: int) -> Ahead:
        """The entries of a partition that were not looked at, as far as they are read.

        The stream keeps them as far as this node knows; in a log that nodes share it did
        `AHEAD_SECONDS` ago.
        """
        ahead, index = self._ahead[partition], state.next_index(partition)
        now = self._queue.monotonic()
        first = self._queue.shared.followers.first_index(self.logs[partition])
        if ahead.index <= index and first <= index and now < ahead.good_until:
            ahead.pass_to(index)
            if ahead:
                return ahead
        ahead.clear()
        ahead.good_until = now + AHEAD_SECONDS
        operation = Read(log=self.logs[partition], index=index, bytes_max=READ_BYTES)
        await read(self._queue.shared.store, operation)
        self.ends[partition] = operation.extent.next_index
        state.pass_over(partition, operation.extent.first_index)
        ahead.add([CutBlock(block) for block in operation.blocks])
        ahead.pass_to(state.next_index(partition))
        if sum(map(bool, self._ahead)) > AHEAD_MAX:
            for other, kept in enumerate(self._ahead):
                if other != partition:
                    kept.clear()
        return ahead

    async def look_at(self, state: QueueState, wanted: int, data: dict[Place, Cut]) -> None:
        """Take so many further entries among the open ones, of all partitions in turn."""
        idle = 0
        while wanted > 0 and idle < len(self.logs) and not state.is_full:
            partition = self.next_in_turn()
            found = await self.next_entries(state, partition)
            idle = 0 if found else idle + 1
            while found and wanted > 0 and not state.is_full:
                cut, entry = found.take_entry()
                place = partition, cut.first_index
                ready = state.ready_count
                state.look_at(*place, key_number(entry.key))
                state.ripen(0)
                if state.ready_count > ready:
                    data[place] = cut
                    wanted -= 1

    # Entries that are open -------------------------------------------------------------------

    async def entries_at(self, places: Sequence[Place]) -> list[Cut | None]:
        """Read entries by their places; None: the stream does not keep it."""
        reads = {
            place: Read(log=self.logs[place[0]], index=place[1], entries_max=1, bytes_max=1)
            for place in places
            if place[0] < len(self.logs)
        }
        if reads:
            await read(self._queue.shared.store, *reads.values())
        return [_cut_at(reads.get(place), place) for place in places]

    async def fetch(
        self, state: QueueState, places: Sequence[Place], data: dict[Place, Cut]
    ) -> None:
        """Read entries that were looked at before; those that are no more are passed over."""
        for place, cut in zip(places, await self.entries_at(places), strict=True):
            if cut is None:
                state.pass_one_over(place)
            else:
                data[place] = cut

    # Ends ------------------------------------------------------------------------------------

    async def find_ends(self) -> Sequence[int]:
        """Where all partitions end."""
        reads = [Read(log=log, index=0, entries_max=1, bytes_max=1) for log in self.logs]
        await read(self._queue.shared.store, *reads)
        return [one.extent.next_index for one in reads]

    async def find_oldest(self, state: QueueState) -> int:
        """See when the oldest entry came that is not settled, and where partitions end.

        Returns milliseconds since 1970; 0: there is none.
        """
        reads = [
            Read(log=log, index=state.low_mark(partition), entries_max=1, bytes_max=1)
            for partition, log in enumerate(self.logs)
        ]
        await read(self._queue.shared.store, *reads)
        self.ends = [one.extent.next_index for one in reads]
        came = [decode_header(one.blocks[0].value).received_at for one in reads if one.blocks]
        return min(came, default=0)

    def depth(self, state: QueueState) -> int:
        """How many entries are not settled, as far as ends are known."""
        ahead = (
            max(0, end - state.next_index(partition)) for partition, end in enumerate(self.ends)
        )
        return state.open_count + sum(ahead)


def _cut_at(operation: Read | None, place: Place) -> Cut | None:
    """The entry that was read, where it is there."""
    if operation is None or not operation.blocks or operation.extent.first_index > place[1]:
        return None
    return Cut.at(operation.blocks[0], place[1])
