"""Other nodes' messages on their way into the local log: in order, and each once for good.

With the entries of an append the last number of each of their chains is written, in the same
batch: after a crash either both are there or none, and what comes again is known. So it is known,
too, whether an append that has failed is in the log all the same, as may be after a failed sync.
"""

import json
from collections.abc import Callable, Iterable
from contextlib import suppress
from functools import lru_cache, partial
from itertools import takewhile
from struct import Struct
from typing import Final, NamedTuple

from rillnode.actors.core.access import NODE_PRINCIPAL
from rillnode.actors.core.delivery import Origin
from rillnode.actors.core.streams.appending import Appends, Insertion
from rillnode.actors.core.streams.context import stream_address
from rillnode.actors.engine.waiting import Signal
from rillnode.actors.engine.worker import Worker
from rillnode.actors.log import GetRecord, StreamRecord, log_id
from rillnode.actors.log.records import beside_log
from rillnode.actors.log.waiting import read
from rillnode.actors.overlay.context import OverlayContext
from rillnode.actors.overlay.intake import Intake
from rillnode.actors.overlay.rendering import Item, item_of
from rillnode.codecs.entries import split_entries
from rillnode.codecs.errors import RillnodeError, StoreError
from rillnode.codecs.events import event_logger
from rillnode.codecs.streamr.duplicates import Number
from rillnode.codecs.streamr.ordering import ChainName
from rillnode.codecs.streamr.stream_message import StreamMessage

logger = event_logger("rillnode.actors.overlay.keeping")

_NUMBER: Final = Struct(">QQ")
_CURSOR: Final = Struct(">QQ")
RETRY_SECONDS: Final = 1.0
"""How often it is looked whether the store can be written again."""

Records = list[tuple[str, bytes | None]]


def records_prefix(log: int) -> str:
    """Begins the names of what is kept beside a log for its overlay."""
    return f"{beside_log(log)}overlay/"


@lru_cache(1_024)
def _chain_text(chain: ChainName) -> str:
    """A chain as its record is called; most messages are of few chains."""
    return json.dumps(chain, separators=(",", ":"))


def chain_record(log: int, chain: ChainName, number: Number | None) -> tuple[str, bytes | None]:
    """The record of a chain's last number; None removes it."""
    value = None if number is None else _NUMBER.pack(*number)
    return records_prefix(log) + _chain_text(chain), value


def read_chain_record(log: int, name: str, value: bytes) -> tuple[ChainName, Number]:
    """What `chain_record` has made."""
    publisher_id, chain_id = json.loads(name.removeprefix(records_prefix(log)))
    timestamp, sequence = _NUMBER.unpack(value)
    return (publisher_id, chain_id), (timestamp, sequence)


def cursor_record(log: int, next_index: int, previous: int | None) -> tuple[str, bytes]:
    """The record of how far a log was announced; it sorts behind those of chains."""
    value = _CURSOR.pack(next_index, 0 if previous is None else previous + 1)
    return f"{records_prefix(log)}~", value


def read_cursor(value: bytes) -> tuple[int, int | None]:
    """The next index, and that of the last entry of bytes announced."""
    next_index, previous = _CURSOR.unpack(value)
    return next_index, previous - 1 if previous else None


class _Waiting(NamedTuple):
    message: StreamMessage
    item: Item
    origin: Origin | None
    size: int


class Underway:
    """The append of one partition that has not ended, whichever instance of its actor asked.

    There is one at a time. An instance that begins must know what is in the log: it waits until
    that has ended which the one before it has begun.
    """

    def __init__(self) -> None:
        self._end = Signal()
        self._end.set()

    def begun(self) -> None:
        """Something is appended now."""
        self._end = Signal()

    def over(self, *_: object) -> None:
        """It has ended; harmless when repeated."""
        self._end.set()

    async def ended(self) -> None:
        """Wait until nothing is under way."""
        await self._end


class Keeper:
    """The messages of one stream partition that are not durable yet.

    What waits counts for the link that it came over, which is read no more while that is much.

    Args:
        context: the node's parts.
        intake: learns what was taken.
        record: the stream.
        partition: the partition.
        owner: whose appends these are.
        underway: knows of them beyond this instance.
        stored: told of each block of them that is in the log: its first index, and how many.
    """

    def __init__(
        self,
        context: OverlayContext,
        intake: Intake,
        record: StreamRecord,
        partition: int,
        owner: Worker,
        underway: Underway,
        stored: Callable[[int, int], object],
    ) -> None:
        self._context = context
        self._intake = intake
        self._log = log_id(record.id, partition)
        address = stream_address(record.name, partition)
        self._appends = Appends(context.streams, address, self._log, record.owner)
        self._owner = owner
        self._underway = underway
        self._stored = stored
        self._waiting: list[_Waiting] = []
        self._in_flight: list[_Waiting] = []
        self._changed: dict[ChainName, None] = {}
        self._records: Records = []

    def keep(self, message: StreamMessage, text: bytes | None, origin: Origin | None) -> None:
        """Let a message be appended, after those before it.

        Raises:
            CodecError: it cannot be kept.
        """
        item = item_of(message, text)
        size = item.entry.size + len(item.meta)
        if origin is not None:
            origin.account.reserved_bytes += size
        self._waiting.append(_Waiting(message, item, origin, size))

    def flush(self) -> None:
        """Append what waits, unless an append is under way: what comes meanwhile goes together."""
        if self._in_flight or not self._waiting:
            return
        kind = self._waiting[0].item.kind
        count = 1
        if len(self._waiting) > 1:  # mostly messages travel one by one
            alike = takewhile(lambda one: one.item.kind is kind, self._waiting)
            count = len(next(split_entries(one.item.entry for one in alike)).entries)
        self._in_flight = self._waiting[:count]
        del self._waiting[:count]
        self._append()

    def _appended(self, count: int, first_index: int, error: RillnodeError | None) -> None:
        self._underway.over()
        if error is None:
            self._stored(first_index, count)
            self._kept()
        elif error.code == "stream.removed":
            self.drop()
        else:
            logger.warning("not_kept", extra={"code": error.code})
            self._owner.begin(self._append_again())

    async def _append_again(self) -> None:
        """Append once more what is not in the log, once the store knows what is on its disk."""
        store = self._context.streams.store
        key, written = self._mark
        while True:
            await self._owner.sleep(RETRY_SECONDS)
            if not store.health.writable:
                continue
            look = GetRecord(key=key)
            with suppress(StoreError):
                await read(store, look)
                break
        if not self._in_flight:
            return  # it was given up meanwhile
        if written is not None and look.value == written:
            self._kept()
        else:
            self._append()

    @property
    def _mark(self) -> tuple[str, bytes | None]:
        """The last of the records that are written with what is under way."""
        name = self._in_flight[-1].message.id
        key, _ = chain_record(self._log, (name.publisher_id.lower(), name.chain_id), None)
        return key, dict(self._records).get(key)

    def _kept(self) -> None:
        self._context.counters["kept"] += len(self._in_flight)
        self._settle(self._in_flight)
        self._in_flight, self._records = [], []
        self.flush()

    def drop(self) -> None:
        """Give up what waits."""
        self._settle((*self._in_flight, *self._waiting))
        self._in_flight, self._records = [], []
        self._waiting.clear()

    def _settle(self, ended: Iterable[_Waiting]) -> None:
        for one in ended:
            if one.origin is not None:
                one.origin.account.reserved_bytes -= one.size

    def _append(self) -> None:
        batch = self._in_flight
        keys = [(key, nth) for nth, one in enumerate(batch) for key in one.item.keys]
        items, entry_keys, headers = zip(*(one.item.entry for one in batch), strict=True)
        metas = [one.item.meta for one in batch]
        for one in batch:
            self.took(one.message)
        self._records = [*self._records, *self.records()]  # those of a failed append once more
        entries = Insertion(
            NODE_PRINCIPAL,
            batch[0].item.kind,
            items,
            metas=metas if any(metas) else (),
            entry_keys=entry_keys if any(key is not None for key in entry_keys) else (),
            headers=headers if any(headers) else (),
            keys=keys,
            records=self._records,
        )
        self._underway.begun()
        appended = partial(self._appended, len(batch))
        self._appends.insert(self._owner, entries, appended, self._underway.over)

    def took(self, message: StreamMessage) -> None:
        """A message is in the log, or will be with the next append: its chain's record changes."""
        name = message.id
        forgotten = self._intake.took(message)
        self._changed[name.publisher_id.lower(), name.chain_id] = None
        if forgotten is not None:
            self._changed[forgotten] = None

    def records(self) -> Records:
        """The records that have changed since this was asked last."""
        changed, self._changed = self._changed, {}
        last = self._intake.last
        return [chain_record(self._log, chain, last.get(chain)) for chain in changed]
