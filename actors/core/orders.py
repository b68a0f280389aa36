"""Order among the handlers of one actor that wait."""

from collections import deque
from collections.abc import Awaitable, Hashable
from typing import Any, Final

from rillnode.actors.engine.waiting import Signal


class _AtOnce:
    """What need not be waited for."""

    __slots__ = ()

    def __await__(self) -> Any:  # an iterator that ends at once
        return iter(())


_AT_ONCE: Final = _AtOnce()


class Orders:
    """Order among the handlers of one instance: those for one key go on one after the other.

    Keys for which nobody goes on take no memory.
    """

    __slots__ = ("_waiting",)

    def __init__(self) -> None:
        # None: somebody goes on, and nobody waits behind him.
        self._waiting: dict[Hashable, deque[Signal] | None] = {}

    def __bool__(self) -> bool:
        return bool(self._waiting)

    def of(self, key: Hashable) -> "Order":
        """Have it to oneself within an `async with`, in the order of asking."""
        return Order(self, key)

    def enter(self, key: Hashable) -> Awaitable[None]:
        """Wait for one's turn; `leave` ends it. Who is cancelled meanwhile has none."""
        if key in self._waiting:
            return self._wait(key)
        self._waiting[key] = None
        return _AT_ONCE

    async def _wait(self, key: Hashable) -> None:
        waiting = self._waiting[key]
        if waiting is None:
            waiting = self._waiting[key] = deque()
        turn = Signal()
        waiting.append(turn)
        try:
            await turn
        except BaseException:
            if turn in waiting:
                waiting.remove(turn)
            else:  # its turn had come: it is the next one's
                self.leave(key)
            raise

    def leave(self, key: Hashable) -> None:
        """End one's turn."""
        waiting = self._waiting[key]
        if waiting:
            waiting.popleft().set()
        else:
            del self._waiting[key]


class Order:
    """One turn among those who ask for a key; an asynchronous generator costs twice as much."""

    __slots__ = ("_key", "_orders")

    def __init__(self, orders: Orders, key: Hashable) -> None:
        self._orders = orders
        self._key = key

    def __aenter__(self) -> Awaitable[None]:
        """Wait for it."""
        return self._orders.enter(self._key)

    async def __aexit__(self, *_: object) -> None:
        """End it."""
        self._orders.leave(self._key)
