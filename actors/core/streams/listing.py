"""A page of what an asker may see, gathered from as many pages of the store as that takes.

Where to go on is told by the last item that the asker sees: the name of one that it may not know
of is never told, not even as a place in a list.
"""

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Final, Generic, TypeVar

from rillnode.codecs import native

ANSWER_PARTS: Final = 1_000
"""Parts of items with which an answer ends: a stream has up to 1,024 partitions, each takes up to
1.6 kB, and the answer has to fit a frame. Own choice."""

T = TypeVar("T")


def _one(_: object) -> int:
    return 1


@dataclass(slots=True, eq=False)
class Page(Generic[T]):
    """One answer to a list request, so far."""

    items: list[T] = field(default_factory=list[T])
    parts: int = 0

    def take(self, visible: Iterable[T], parts_of: Callable[[T], int] = _one) -> None:
        """Add what the asker may see of one page of the store, as far as it fits."""
        for item in visible:
            self.items.append(item)
            self.parts += parts_of(item)
            if self.full:
                return

    @property
    def full(self) -> bool:
        """Whether one answer holds no more."""
        return len(self.items) == native.LIST_MAX or self.parts >= ANSWER_PARTS
