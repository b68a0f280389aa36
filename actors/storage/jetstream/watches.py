"""Who waits for one log to grow."""

from collections.abc import Callable

from rillnode.actors.storage.watch import Watch
from rillnode.codecs.errors import StoreError


class Watches:
    """Operations that are completed once the log holds an entry at their index.

    Who was told watches again in a moment, so it is true for a while that somebody waits.
    """

    def __init__(self, done: Callable[[Watch], None]) -> None:
        self._done = done
        self._waiting: list[Watch] = []
        self._fresh = False

    def __bool__(self) -> bool:
        return bool(self._waiting) or self._fresh

    def age(self) -> None:
        """Time has passed: who waits no more is not expected back."""
        self._fresh = bool(self._waiting)

    def add(self, operation: Watch) -> None:
        """Wait for one more."""
        self._waiting.append(operation)
        self._fresh = True

    def tell(self, next_index: int) -> None:
        """The log has grown so far."""
        waiting, self._waiting = self._waiting, []
        for operation in waiting:
            if operation.index >= next_index:
                self._waiting.append(operation)
            else:
                operation.next_index = next_index
                self._done(operation)

    def end(self, error: StoreError) -> None:
        """The log grows no more."""
        waiting, self._waiting = self._waiting, []
        for operation in waiting:
            operation.error = error
            self._done(operation)
