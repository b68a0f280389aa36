"""Who waits for one log to grow."""

from collections.abc import Callable

from rillnode.actors.storage.watch import Watch
from rillnode.codecs.errors import StoreError


class Watches:
    """Operations that are completed once the log holds an entry at their index."""

    def __init__(self, done: Callable[[Watch], None]) -> None:
        self._done = done
        self._waiting: list[Watch] = []

    def __bool__(self) -> bool:
        return bool(self._waiting)

    def add(self, operation: Watch) -> None:
        """Wait for one more."""
        self._waiting.append(operation)

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
