"""Saved positions: one consumer's place in one partition, durable and never moving back.

Who asks for one position waits until those before have their answer. One save is under way at a
time, of the highest that any of those wants who wait; so a consumer that saves often waits for few
writes. Where the store fails, it fails for all who had asked by then.
"""

from collections import OrderedDict
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Final

from rillnode.actors.core.orders import Orders
from rillnode.actors.log import LoadIndex, LogStore, SavedIndexKey, SaveIndex, WriteOperation
from rillnode.actors.log.waiting import read, write
from rillnode.codecs.errors import StoreError
from rillnode.codecs.events import event_logger

logger = event_logger("rillnode.actors.core.streams.index")

KNOWN_MAX: Final = 10_000
"""Positions that are known without a look; above it those not asked for for longest are forgotten.
Own choice."""

_OWN: Final = ("store.fenced", "stream.removed")
"""Refusals of one save, which say nothing of others."""

Seen = Sequence[tuple[str, int]]
"""Named values that a position follows from, and their versions."""


@dataclass(slots=True, eq=False)
class _Position:
    """What is known of one position.

    Attributes:
        known: whether `index` is what is durably saved.
        index: None: nothing is saved.
        lasts: whether nobody else saves it: then what is known need not be looked at again.
        changes: how often something has happened that makes a look of before outdated.
        saves: how many are under way.
        highest: of these, by the stream that they are for, as of SaveIndex.
    """

    known: bool = False
    index: int | None = None
    lasts: bool = True
    changes: int = 0
    saves: int = 0
    highest: dict[int, int] = field(default_factory=dict[int, int])

    def look_again(self) -> None:
        """What was known may hold no more."""
        self.known, self.index = False, None
        self.changes += 1

    def saved(self, operation: SaveIndex) -> None:
        """A save is complete."""
        self.saves -= 1
        self.changes += 1
        error = operation.error
        if error is None:
            self.index = max(operation.index, self.index or 0)
        else:
            about = {"stream": operation.key.stream, "code": error.code}
            logger.warning("index_not_saved", extra=about)
        if not self.saves:
            self.highest.clear()


class KnownPositions:
    """The saved positions that a node knows, beyond any instance of their owner.

    A save goes on when the instance that has asked for it is gone; the next one must save no less
    while it is under way, and know what has come of it.
    """

    def __init__(self) -> None:
        self._positions: OrderedDict[SavedIndexKey, _Position] = OrderedDict()

    def of(self, key: SavedIndexKey) -> _Position:
        """What is known of a position, the last to be forgotten now."""
        positions = self._positions
        position = positions.get(key)
        if position is None:
            position = positions[key] = _Position()
            if len(positions) > KNOWN_MAX:
                oldest, known = next(iter(positions.items()))
                if known.saves:
                    positions.move_to_end(oldest)
                else:
                    del positions[oldest]
        else:
            positions.move_to_end(key)
        return position

    def forget(self, stream: str) -> None:
        """A stream was removed, and with it what was saved, and is being saved, for it."""
        for key, position in self._positions.items():
            if key.stream == stream:
                position.look_again()
                position.highest.clear()

    def look_again(self) -> None:
        """Have all positions looked at before the next answer."""
        for position in self._positions.values():
            position.look_again()


@dataclass(slots=True)
class _Line:
    """Those who ask for one position.

    Attributes:
        asking: how many there are.
        asked: the number of the last.
        wanted: the stream that they want it saved for, as of SaveIndex, and what, by their numbers.
        looked: the number of the last who had asked when the store was last asked to look.
        tried: likewise to do anything.
        error: why that failed, for those up to `failed`.
    """

    asking: int = 0
    asked: int = 0
    wanted: dict[int, tuple[int, int]] = field(default_factory=dict[int, tuple[int, int]])
    looked: int = 0
    tried: int = 0
    failed: int = 0
    error: StoreError | None = None


class Positions:
    """Answers and saves positions, for the one actor that owns all of a node.

    Args:
        store: keeps them.
        known: those that are known.
        may_begin: tells what a position follows from where nothing is saved yet, or refuses it.
    """

    def __init__(
        self,
        store: LogStore,
        known: KnownPositions,
        may_begin: Callable[[SavedIndexKey], Awaitable[Seen]],
    ) -> None:
        self._may_begin = may_begin
        self._store = store
        self._known = known
        self._lines: dict[SavedIndexKey, _Line] = {}
        self._orders = Orders()

    async def get(self, key: SavedIndexKey) -> int | None:
        """What is durably saved, after all that was asked for before; None: nothing.

        Raises:
            StoreError: that cannot be told.
        """
        return await self._ask(key, None, anew=True)

    async def ensure(self, key: SavedIndexKey) -> int | None:
        """The same; where nothing is saved 0 is, and that is durable then.

        Raises:
            StoreError: that cannot be told, or not saved.
        """
        return await self._ask(key, 0, anew=True)

    async def save(
        self, key: SavedIndexKey, index: int, seen: Seen = (), created_at: int = 0
    ) -> int | None:
        """Save a position unless a higher one is saved; return what is durably saved then.

        Args:
            key: whose, and where.
            index: the position.
            seen: what it follows from, as of SaveIndex.
            created_at: of the stream that it is for, likewise.

        Raises:
            StoreError: it was not saved.
        """
        return await self._ask(key, index, anew=False, seen=seen, created_at=created_at)

    async def _ask(
        self,
        key: SavedIndexKey,
        index: int | None,
        *,
        anew: bool,
        seen: Seen = (),
        created_at: int = 0,
    ) -> int | None:
        line = self._lines.setdefault(key, _Line())
        line.asking += 1
        line.asked += 1
        number = line.asked
        if index is not None:
            line.wanted[number] = created_at, index
        try:
            async with self._orders.of(key):
                if line.error is not None and number <= line.failed:
                    error = line.error
                    raise StoreError(
                        error.code, error.text, retryable=error.retryable, **error.context
                    )
                try:
                    save = partial(self._save, key, line, seen, created_at)
                    return await self._settle(key, line, index, number, save, anew=anew)
                except StoreError as error:
                    if error.code not in _OWN:
                        line.error, line.failed = error, line.tried
                    raise
        finally:
            line.wanted.pop(number, None)
            line.asking -= 1
            if not line.asking:
                del self._lines[key]

    async def _settle(
        self,
        key: SavedIndexKey,
        line: _Line,
        index: int | None,
        number: int,
        save: Callable[[_Position], Awaitable[int]],
        *,
        anew: bool,
    ) -> int | None:
        while True:
            position = self._known.of(key)
            is_current = position.known and (position.lasts or line.looked >= number)
            if not position.known or (anew and not is_current):
                await self._look(key, line, position)
            elif index is not None and (position.index is None or index > position.index):
                return await save(position)  # what others have saved is told with that
            elif is_current:
                return position.index
            else:
                await self._look(key, line, position)

    async def _look(self, key: SavedIndexKey, line: _Line, position: _Position) -> None:
        line.tried = line.looked = line.asked
        changes = position.changes
        load = LoadIndex(key=key)
        await read(self._store, load)
        if position.changes == changes:
            position.known, position.index, position.lasts = True, load.index, load.lasts

    async def _save(
        self, key: SavedIndexKey, line: _Line, seen: Seen, created_at: int, position: _Position
    ) -> int:
        begins = () if position.index is not None else await self._may_begin(key)
        line.tried = line.asked
        wanted = [index for stream, index in line.wanted.values() if stream == created_at]
        index = max(position.highest.get(created_at, -1), *wanted)
        position.highest[created_at] = index
        position.saves += 1
        save = SaveIndex(
            token=position, key=key, index=index, seen=(*seen, *begins), created_at=created_at
        )
        await write(self._store, save, done=_saved)
        return max(index, position.index or 0)


def _saved(operation: WriteOperation) -> None:
    assert isinstance(operation, SaveIndex)
    position: _Position = operation.token
    position.saved(operation)
